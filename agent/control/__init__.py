"""The control loop of the agent."""
