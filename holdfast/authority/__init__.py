"""Authority: policy, conditions, approval requests, what people decide, and the signatures that prove it.

These are models and pure judgements. How a run asks, counts votes and acts on a decision is `holdfast.run`.
"""
