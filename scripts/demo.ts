import { openPlace } from './demo/database.ts'
import { openStage, type Stage } from './demo/stage.ts'
import { playStory, type Step } from './demo/story.ts'

/*
 * `npm run demo`: shows what Daybook does, on real processes, and checks that it is so. Needs nothing that runs: it
 * starts PostgreSQL (or makes a database of its own on the server of DATABASE_URL), an SMTP server, the web process and
 * the mail worker, plays the story of demo/story.ts and removes all of it again, also on Ctrl-C. Exit code 0 means that
 * every expectation held.
 */

const failed = 1
const interrupted = 130

/** Plays the story before an audience. Resolves with the exit code once everything is removed. */
export async function demo(env: NodeJS.ProcessEnv, say: (text: string) => void): Promise<number> {
  await using cleanup = new AsyncDisposableStack()
  const signal = Promise.race(['SIGINT', 'SIGTERM', 'SIGHUP'].map((name) => signalled(name as NodeJS.Signals)))
  let stage: Stage | undefined
  const play = async () => {
    const place = await openPlace(env.DATABASE_URL || undefined, cleanup)
    stage = await openStage(place, (close) => cleanup.defer(close))
    say(
      `Daybook on ${place.description}; web process ${stage.url}; mail worker; SMTP server on port ${stage.smtp.port}\n`,
    )
    await playStory(stage, steps(say))
    return 0
  }
  try {
    return await Promise.race([play(), signal])
  } catch (error) {
    say(`\n${error instanceof Error ? error.message : String(error)}`)
    if (stage !== undefined) say(`\nThe last lines of the processes:\n${stage.lastWords()}`)
    return failed
  }
}

/** Shows every step: its title when it has held, and under it what was seen. */
export function steps(say: (text: string) => void): Step {
  return async (title, run) => {
    const seen: string[] = []
    try {
      const result = await run((what) => seen.push(what))
      say(`✓ ${title}`)
      return result
    } catch (error) {
      say(`✗ ${title}`)
      throw error
    } finally {
      for (const what of seen) say(`    ${what}`)
    }
  }
}

/** Resolves with the exit code at the first signal. Later ones change nothing: the removal is on its way. */
function signalled(name: NodeJS.Signals): Promise<number> {
  return new Promise((resolve) => process.on(name, () => resolve(interrupted)))
}

if (import.meta.main) {
  const startedAt = performance.now()
  const code = await demo(process.env, (text) => process.stdout.write(`${text}\n`))
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  process.stdout.write(code === 0 ? `\nEverything held (${seconds} s).\n` : '\nStopped; everything is removed.\n')
  process.exit(code)
}
