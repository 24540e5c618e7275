
/** opencode's plugin: what is recalled is a part of the prompt that is marked as not typed by the person. */
export const Crystal = async ({ directory }) => {
  const starts = new Map() // session -> why its next prompt is a start; "" once it was one
  const ofOthers = new Set() // sessions of sub-agents: their prompts are written by the model
  return {
    event: async ({ event }) => {
      const session = event.properties?.sessionID
      if (event.type === "session.created" && event.properties.info?.parentID) ofOthers.add(session)
      else if (event.type === "session.created") starts.set(session, "startup")
      else if (event.type === "session.compacted") starts.set(session, "compact")
      else if (event.type === "session.idle") nudge()
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const typed = parts.filter((part) => part.type === "text" && !part.synthetic)
      if (ofOthers.has(sessionID) || typed.length === 0) return
      const source = starts.get(sessionID) ?? "resume"
      starts.set(sessionID, "")
      const prompt = typed.map((part) => part.text).join("\n")
      const text = await recalled(source, sessionID, directory, prompt)
      const id = `${parts.at(-1).id}crystal` // parts are in the order of their ids
      if (text) parts.push({ id, sessionID, messageID: message.id, type: "text", synthetic: true, text })
    },
  }
}
