"""Vision-language models: what images become, and prompts with images in them."""
