"""The source of this producer as a member of its group (`schemas.members`): it joins, pauses and closes."""
