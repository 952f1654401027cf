"""What people use: digenctl, and the Python client `clients.api.Digend`. Importing it imports nothing heavy."""
