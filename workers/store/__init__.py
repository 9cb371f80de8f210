"""The worker side of the database: every statement the fleet sends on its own tables stands in this package."""
