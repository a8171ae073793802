"""Small changes to the product's source, drawn by chance: which of them do the fast tests and the simulator find?"""
