"""The code of the shop: tasks for the workers, and the web application that schedules them."""
