"""Commands between the devices of a vault, as this machine sends, receives, runs and shows them.

book     what was asked and answered, in `state/commands.db`
asking   asking another device, and waiting for its answer
desk     in the agent: listens, runs what is asked, and answers
actions  what each action does here
policy   which device may have which action run here
"""
