"""Rules that turn a question into a QueryPlan, without a model. If they are not sure, they ask back or refuse."""
