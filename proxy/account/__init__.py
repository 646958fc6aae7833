"""What a person may see of himself: whom the gate takes him for, and what he may act for."""
