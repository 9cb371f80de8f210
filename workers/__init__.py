"""The shell: claims a task, carries out the one effect its state asks for, and commits what came of it."""
