-- The events of one agent, from its creation on, without a look at all others.
CREATE INDEX hub_events_by_agent ON hub_events (tenant, agent, id) WHERE agent IS NOT NULL;
