"""Words to QueryPlan by rules: no model, no guess. What is not understood is asked back or refused."""
