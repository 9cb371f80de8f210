"""What a person touches: command line, web applications and the embedded stack."""
