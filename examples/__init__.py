"""Small new algorithms on the engine, as a user would write them."""
