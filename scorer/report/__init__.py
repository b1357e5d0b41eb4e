"""Status and Events of gangs and nodes, and the views of the inspection API."""
