import { parseCron } from '../adapters/cron.ts'
import type { Extensions, LoadedExtension } from './extensions.ts'
import { broken, explained } from './folders.ts'
import type { ScheduleExtension } from './types.ts'

/** One thing to do again and again. */
type Schedule = { readonly id: string; readonly cron: string; run(): Promise<void> }

/**
 * The schedules of all extensions, in the order of their names.
 *
 * @throws {ConfigError} of one line for a malformed expression, or two schedules with the same id
 */
export async function schedulesOf({ schedules }: Extensions): Promise<readonly Schedule[]> {
  const all: Schedule[] = []
  for (const loaded of schedules) {
    const add = (id: string, cron: string, handler: () => unknown) => {
      if (all.some((other) => other.id === id)) throw broken(loaded.file, `has a second schedule with the id ${id}`)
      checkCron(loaded, cron)
      all.push({ id, cron, run: async () => void (await handler()) })
    }
    await register(loaded, add)
  }
  return all
}

type Add = (id: string, cron: string, handler: () => unknown) => void

async function register({ definition, context, file }: LoadedExtension<ScheduleExtension>, add: Add): Promise<void> {
  if (typeof definition === 'function') await explained(file, 'failed', () => definition({ scheduleJob: add }, context))
  else add(definition.id, definition.schedule, () => definition.handler(context))
}

function checkCron({ file }: LoadedExtension<ScheduleExtension>, cron: string): void {
  try {
    parseCron(cron)
  } catch (error) {
    throw broken(file, `has the schedule ${JSON.stringify(cron)}: ${(error as Error).message}`)
  }
}
