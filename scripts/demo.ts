import { openPlace } from './demo/database.ts'
import { openStage, type Stage } from './demo/stage.ts'
import { showSteps } from './demo/steps.ts'
import { playStory } from './demo/story.ts'

/*
 * `npm run demo`: shows what Daybook does, on real processes, and checks that it is so. Nothing has to run: it starts
 * PostgreSQL (or makes a database of its own on the server of DATABASE_URL), an SMTP server, the web process and the
 * mail worker, plays the story of demo/story.ts, and removes all of it again, also on Ctrl-C.
 */

const held = 0
const failed = 1
const interrupted = 130

/** Plays the story. Resolves with the exit code when everything is removed: 0 only if every expectation held. */
export async function demo(databaseUrl: string | undefined, say: (text: string) => void): Promise<number> {
  await using cleanup = new AsyncDisposableStack()
  let over = false
  const tell = (text: string) => over || say(text)
  let stage: Stage | undefined
  const play = async () => {
    const place = await openPlace(databaseUrl, tell, cleanup)
    stage = await openStage(place, cleanup)
    tell(`${place.description}; web process on ${stage.url}; mail worker; SMTP server on port ${stage.smtp.port}\n`)
    await playStory(stage, showSteps(tell))
    return held
  }
  try {
    return await Promise.race([play(), firstSignal()])
  } catch (error) {
    tell(`\n${error instanceof Error ? error.message : String(error)}`)
    if (stage !== undefined) tell(`\nThe last lines of the processes:\n${stage.lastWords()}`)
    return failed
  } finally {
    over = true
  }
}

/** Resolves at the first one. Later ones change nothing: the removal is on its way and takes a moment at most. */
function firstSignal(): Promise<number> {
  return new Promise((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => resolve(interrupted))
  })
}

const endings: Readonly<Record<number, string>> = {
  [held]: 'Everything held.',
  [failed]: 'The demo has failed.',
  [interrupted]: 'Interrupted; everything is removed.',
}

if (import.meta.main) {
  const code = await demo(process.env.DATABASE_URL || undefined, (text) => process.stdout.write(`${text}\n`))
  process.stdout.write(`\n${endings[code]}\n`)
  process.exit(code)
}
