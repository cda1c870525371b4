"""What is usual, where an app has no reason for another."""

# What must hold of runs of so many requests or more, in hundredths: hits of anonymous reads, and of the pages
# among them; hits of all requests; and what is left for the app. The fewer they are, the more pages are asked for
# the first time: of still shorter runs the shares are told, and not judged.
FLOORS = {8_000: (95, 60, 45), 2_000: (85, 55, 45)}
# Visitors who were there before: they bring the cookie that the app gave them then.
REGULARS = 60
