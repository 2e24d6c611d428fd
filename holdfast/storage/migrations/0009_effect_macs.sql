-- A MAC of the fleet over each outcome (holdfast/seals/outcomes.py): who can write to the database cannot
-- make one, so a worker adopts no outcome without it. Null for an effect without an outcome, and for outcomes that a
-- release before this one has recorded.
ALTER TABLE holdfast.effects ADD COLUMN mac text;
