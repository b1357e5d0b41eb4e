"""Write plans to the API server, and follow each one until its members are bound."""
