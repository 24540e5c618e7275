import { spawn } from "node:child_process"

const PROGRAM = ["crystal"]
const RECALL = ["recall", "--hook", "--plugin", "openclaw"]
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

/** OpenClaw's plugin: what is recalled is put before the prompt, for this turn alone. */
export default {
  id: "crystal",
  name: "Crystal",
  description: "Recalls what was said and decided before, on all of your machines.",
  register(api) {
    const starts = new Map() // session -> why its next prompt is a start; "" once it was one
    api.on("before_prompt_build", async (event, context) => {
      const origin = context.inputProvenance?.kind ?? "external_user"
      const prompt = event.currentUserMessage ?? event.prompt
      if ((context.trigger ?? "user") !== "user" || origin !== "external_user" || !prompt) return
      const session = context.sessionId ?? ""
      const source = starts.get(session) ?? (event.messages.length === 0 ? "startup" : "resume")
      starts.set(session, "")
      const text = await recalled(source, session, context.workspaceDir ?? "", prompt)
      if (text) return { prependContext: text }
    })
    api.on("after_compaction", (_event, context) => {
      starts.set(context.sessionId ?? "", "compact")
    })
    api.on("agent_end", () => nudge())
  },
}
