
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
