import { spawn } from "node:child_process"

const PROGRAM = ["crystal"]
const RECALL = ["recall", "--hook", "--plugin", "opencode"]
const NUDGE = ["nudge"]
const MILLISECONDS_MAX = 1000

/** What Crystal recalls at an event; "" where it has nothing to say, is not there, or takes too long. */
function recall(event) {
  return new Promise((resolve) => {
    let said = ""
    const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), ...RECALL], { stdio: ["pipe", "pipe", "ignore"] })
    const timer = setTimeout(() => child.kill("SIGKILL"), MILLISECONDS_MAX)
    child.on("error", () => resolve(""))
    child.stdin.on("error", () => undefined) // it has gone, and says nothing
    child.stdout.on("data", (data) => (said += data))
    child.on("close", () => {
      clearTimeout(timer)
      resolve(added(said))
    })
    child.stdin.end(JSON.stringify(event))
  })
}

/** Have Crystal's background service read the transcripts now. Waits for nothing. */
function nudge() {
  const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), ...NUDGE], { stdio: "ignore" })
  child.on("error", () => undefined)
  child.unref()
}

function added(said) {
  try {
    return JSON.parse(said).hookSpecificOutput?.additionalContext ?? ""
  } catch {
    return ""
  }
}

/** What is recalled at a prompt, and before it where the session begins: `source` is "" where it goes on. */
async function recalled(source, session, cwd, prompt) {
  const about = { session_id: session, cwd }
  const parts = []
  if (source) parts.push(await recall({ ...about, hook_event_name: "SessionStart", source }))
  parts.push(await recall({ ...about, hook_event_name: "UserPromptSubmit", prompt }))
  return parts.filter(Boolean).join("\n\n")
}

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
