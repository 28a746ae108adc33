import { parseArgs } from 'node:util'
import { AppError } from '../errors.ts'
import {
  type ConsumerState,
  consumerStates,
  forgetSetAside,
  knownConsumer,
  moveTo,
  retrySetAside,
  type SetAsideEvent,
  setAsideEvents,
  skipEvent,
} from '../events/consumer.ts'
import type { Runtime } from '../process/runtime.ts'
import { type Command, misuse, UsageError, unknownCommand } from './command.ts'
import { withRuntime } from './installation.ts'

export const usage = `Usage: daybook consumers <command>
  list [--json]                  every consumer of the log, with the events that it has set aside
  reset <name> --to PLACE        continues one at: now, beginning, a moment such as 2026-03-14T09:26:53Z, or a cursor
  skip <name>                    sets the event aside that a halted one halts at, and continues after it
  skip <name> --position P|all   forgets events that were set aside
  retry <name> [--position P]    handles events that were set aside again, all of them by default
`

/** Where the consumers of the log are, and where they shall go on (docs/consumers.md). */
export const run: Command = (args) => {
  const { values, positionals } = parseArgs({
    args: [...args],
    options: { json: { type: 'boolean' }, to: { type: 'string' }, position: { type: 'string' } },
    allowPositionals: true,
  })
  const [command = '', name, ...more] = positionals
  const act = Object.hasOwn(commands, command) ? commands[command] : undefined
  if (act === undefined) throw unknownCommand('daybook consumers', command, Object.keys(commands))
  const isComplete = command === 'list' ? name === undefined : name !== undefined
  if (!isComplete || more.length > 0)
    throw misuse(
      `daybook consumers ${command}`,
      command === 'list' ? 'takes no name' : 'takes the name of one consumer',
    )
  if (command === 'reset' && values.to === undefined) throw misuse('daybook consumers reset', 'needs --to')
  return withRuntime(async (runtime) => {
    process.stdout.write(await act(runtime, name ?? '', values))
  })
}

type ConsumerOptions = { readonly json?: boolean; readonly to?: string; readonly position?: string }

const commands: Readonly<Record<string, (runtime: Runtime, name: string, values: ConsumerOptions) => Promise<string>>> =
  {
    list: async (runtime, _name, { json }) => {
      const [consumers, aside] = [await consumerStates(runtime.db), await setAsideEvents(runtime.db, mostShown)]
      if (json) return `${JSON.stringify({ consumers, setAside: aside }, null, 2)}\n`
      return [...consumers.map(consumerLine), ...aside.map(eventLine)].join('')
    },
    reset: async (runtime, name, { to }) => {
      await moveTo(runtime, name, to!)
      return `${name} goes on at ${to}\n`
    },
    skip: async (runtime, name, { position }) => {
      await knownConsumer(runtime.db, name)
      if (position !== undefined) {
        const forgotten = await forgetSetAside(runtime, name, position === 'all' ? undefined : [positionIn(position)])
        return `${forgotten} events are not handled\n`
      }
      const skipped = await skipEvent(runtime, name)
      if (skipped === undefined) throw new AppError(409, `${name} is not halted before an event`)
      return `${name} goes on after position ${skipped}, which is set aside\n`
    },
    retry: async (runtime, name, { position }) => {
      await knownConsumer(runtime.db, name)
      const count = await retrySetAside(runtime, name, position === undefined ? undefined : [positionIn(position)])
      return `${count} events are tried again\n`
    },
  }

const mostShown = 1000

function positionIn(text: string): string {
  if (!/^\d{1,18}$/.test(text)) throw new UsageError(`--position: ${JSON.stringify(text)} is no position`)
  return text
}

function consumerLine({ name, state, reason, held, lagSeconds, setAside }: ConsumerState): string {
  const work =
    state === 'running' ? (held ? 'running' : 'nobody works for it') : reason === null ? state : `${state}: ${reason}`
  return `${name.padEnd(20)} ${work}, ${Math.round(lagSeconds)} s behind, ${setAside} set aside\n`
}

function eventLine({ consumer, position, entity, action, reason, attempts }: SetAsideEvent): string {
  return `  ${consumer} set aside ${position} (${action ?? 'gone'} ${entity ?? ''}), failed ${attempts} times: ${reason}\n`
}
