"""What is run by hand: training, pictures, and the app as a process of its own."""
