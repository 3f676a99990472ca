"""Language models that look: what images become, and prompts with images in them."""
