"""What runs inside an entrant's own environment. These modules import the entrant, so nothing else imports them."""
