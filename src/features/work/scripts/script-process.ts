import { type Isolate, openIsolates, scriptName } from '../../../adapters/isolate.ts'
import { ready } from '../../../language/child-pool-step.ts'
import { tooLargeSignal, watchOver } from '../../../language/watchdog.ts'
import { type Ended, preludeSource } from './prelude.ts'
import {
  callLimits,
  emptyProcessMb,
  type FromScript,
  type LogLevel,
  logLimits,
  memoryFlag,
  refusedCall,
  type ScriptFailure,
  type ToScript,
} from './protocol.ts'

/*
 * A process that runs scripts of workflows, one at a time, each in an isolate of its own. It has no environment, and of the
 * world only what its parent answers. The next isolate is made before it is asked for.
 */

const memoryMb = Number(process.argv.find((arg) => arg.startsWith(memoryFlag))!.slice(memoryFlag.length))
watchOver(emptyProcessMb + memoryMb, tooLargeSignal)

/** How often to look at what a script has taken. Milliseconds. */
const lookMs = 10

const isolates = openIsolates({
  memoryMb: Math.max(16, Math.floor(memoryMb / 2)),
  prelude: preludeSource,
  modules: { lodash: 'lodash/lodash.min.js', dayjs: 'dayjs/dayjs.min.js' },
  onCatastrophe: () => process.kill(process.pid, tooLargeSignal),
})

/** Made ahead, where the package could be loaded. */
let next: Isolate | undefined

const answers = new Map<number, (text: string) => void>()
let lastCall = 0

process.on('message', (message: ToScript) => {
  if (message.kind === 'answer') {
    answers.get(message.call)?.(message.text)
    answers.delete(message.call)
  } else if (message.kind === 'check') end(() => check(message.code))
  else void run(message).then((failure) => failure !== undefined && end(() => failure))
})
process.on('disconnect', () => process.exit(0))
// A signal for all processes of a terminal is the parent's to answer.
process.on('SIGTERM', () => undefined).on('SIGINT', () => undefined)
try {
  next = isolates.open()
} catch {
  // The next request for a script gets the reason.
}
say(ready)

function take(): Isolate {
  const taken = next ?? isolates.open()
  next = undefined
  return taken
}

function check(code: string): ScriptFailure | undefined {
  const isolate = take()
  try {
    isolate.check(code)
    return undefined
  } catch (error) {
    return syntaxFailure(error as Error)
  } finally {
    isolate.dispose()
  }
}

/** Undefined where it has said how it ended. */
async function run({ code, context, limits }: Extract<ToScript, { kind: 'run' }>): Promise<ScriptFailure | undefined> {
  let isolate: Isolate
  try {
    isolate = take()
  } catch (error) {
    return unavailable(error as Error)
  }
  const overrun = Promise.withResolvers<ScriptFailure>()
  const began = performance.now()
  const watch = setInterval(() => {
    const failure =
      isolate.computedMs() > limits.computeMs
        ? tooMuch('computing', `It computed for more than ${limits.computeMs} ms`)
        : performance.now() - began > limits.passedMs
          ? tooMuch('time', `It took more than ${limits.passedMs} ms`)
          : undefined
    if (failure === undefined) return
    overrun.resolve(failure)
    isolate.dispose()
  }, lookMs)
  try {
    const host = { call: openCalls(), log: openLog() }
    const text = await Promise.race([overrun.promise, isolate.run(code, context, host)])
    if (typeof text !== 'string') return text
    const ended = JSON.parse(text) as Ended
    if (!ended.ok) return failureOf(ended)
    end(() => undefined, ended.value === undefined ? undefined : JSON.stringify(ended.value))
    return undefined
  } catch (error) {
    // A SyntaxError here means that the script could not be parsed: errors that a script throws come as text.
    if (error instanceof SyntaxError) return syntaxFailure(error)
    // Where it was disposed of by the watch, the race is lost to it only by chance.
    const reason = await Promise.race([overrun.promise, undefined])
    return reason ?? tooMuch('memory', (error as Error).message)
  } finally {
    clearInterval(watch)
    answers.clear()
    isolate.dispose()
  }
}

/** Says how it ended, and gets ready for the next. */
function end(failureOf: () => ScriptFailure | undefined, text?: string): void {
  let failure: ScriptFailure | undefined
  try {
    failure = failureOf()
  } catch (error) {
    failure = unavailable(error as Error)
  }
  // Isolates may leave memory behind: a process that has grown is replaced.
  const isWorn = process.memoryUsage.rss() > (emptyProcessMb + memoryMb / 2) * 1_048_576
  if (failure === undefined) say({ kind: 'done', text, isWorn })
  else say({ kind: 'failed', failure, isWorn })
  if (isWorn || failure?.fault === 'unavailable') return
  setImmediate(() => {
    next ??= isolates.open()
  })
}

function openCalls() {
  let [all, atOnce] = [0, 0]
  return async (name: string, text: string): Promise<string> => {
    if (all >= callLimits.all) return refusedCall(`A script may ask ${callLimits.all} times`)
    if (atOnce >= callLimits.atOnce) return refusedCall(`A script may ask for ${callLimits.atOnce} things at once`)
    all += 1
    atOnce += 1
    lastCall += 1
    const { promise, resolve } = Promise.withResolvers<string>()
    answers.set(lastCall, resolve)
    say({ kind: 'call', call: lastCall, name, text })
    const answer = await promise
    atOnce -= 1
    return answer
  }
}

function openLog() {
  let lines = 0
  return (level: string, text: string): void => {
    lines += 1
    if (lines <= logLimits.lines) say({ kind: 'log', level: level as LogLevel, text })
  }
}

const failureOf = ({ ok: _ok, stack, ...failure }: Extract<Ended, { ok: false }>): ScriptFailure => ({
  ...failure,
  ...(stack !== undefined && { stack: ownLines(stack) }),
})

const tooMuch = (fault: ScriptFailure['fault'], message: string): ScriptFailure => ({ fault, message })

const unavailable = ({ message }: Error): ScriptFailure => ({ fault: 'unavailable', message: message.slice(0, 500) })

function syntaxFailure({ message, stack }: Error): ScriptFailure {
  return {
    fault: 'syntax',
    message: message.replace(/ \[script\.js:.*\]$/, '').slice(0, 500),
    stack: ownLines(stack ?? ''),
  }
}

/** The places in the script itself, of a stack. */
function ownLines(stack: string): string[] {
  return stack.match(new RegExp(`${scriptName.replace('.', '\\.')}:\\d+(:\\d+)?`, 'g'))?.slice(0, 10) ?? []
}

/** The parent may just have ended, and then no process listens any more. */
function say(message: FromScript): void {
  if (process.connected) process.send!(message)
}
