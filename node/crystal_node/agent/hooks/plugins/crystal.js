import { spawn } from "node:child_process"

const PROGRAM = ["crystal"]
const RECALL = ["recall", "--hook"]
const NUDGE = ["nudge"]
const MILLISECONDS_MAX = 1000

/** What Crystal recalls at an event; "" where it has nothing to say, is not there, or takes too long. */
export function recall(event) {
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
export function nudge() {
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
export async function recalled(source, session, cwd, prompt) {
  const about = { session_id: session, cwd }
  const parts = []
  if (source) parts.push(await recall({ ...about, hook_event_name: "SessionStart", source }))
  parts.push(await recall({ ...about, hook_event_name: "UserPromptSubmit", prompt }))
  return parts.filter(Boolean).join("\n\n")
}
