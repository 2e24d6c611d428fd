-- Since when no attempt has been at work on an effect whose outcome is not recorded: a request of the last one may still
-- arrive for a while. By this server's clock alone, so backups and portable files leave both out: it begins again.
ALTER TABLE holdfast.effects
    ADD COLUMN settling_since timestamptz, -- null while an attempt is at work, or before the next one has looked
    ADD COLUMN settling_by    text;        -- the attempt that looked last; another release's attempt does not look
