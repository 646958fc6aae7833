"""What a person may see and change of his own: whom the gate takes him for, and his personal access tokens."""
