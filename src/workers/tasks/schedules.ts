import { parseCron } from '../../adapters/cron.ts'
import { dropLock, registerSchedule, type Slot, scheduleSlots, takeLock, takeSlot } from '../../db/unlogged/tasks.ts'
import type { Runtime } from '../../runtime.ts'
import { openAlarm } from '../alarm.ts'
import { repeat } from './claims.ts'
import type { ScheduleInfo } from './protocol.ts'
import { type Calls, type Runner, startRunner } from './runner.ts'

type Options = { readonly openCalls: () => Calls; readonly known: readonly ScheduleInfo[] }

/** What a killed worker was running is left out for as long; a worker or database that stands still for longer loses it. */
const lockSeconds = 30
const renewMs = 5000
const longestSleepMs = 30_000
const pauseAfterErrorMs = 2000

/**
 * Runs the schedules: each at its time by the clock of the database, in one of all processes, and never twice at once. A
 * time that comes while the last run goes on is left out; times that passed while no worker ran are made up for by one
 * run. All of them share a process, apart from the tasks.
 */
export function openSchedules(rt: Runtime, { openCalls, known }: Options) {
  const alarm = openAlarm()
  const crons = new Map(known.map(({ id, cron }) => [id, parseCron(cron)]))
  const running = new Set<Promise<void>>()
  let runner: Promise<Runner> | undefined
  let stopping = false
  const end = new AbortController()

  const process = () => {
    runner ??= startRunner(rt, { openCalls, signal: end.signal }).then((started) => {
      void started.ended.then(() => {
        runner = undefined
      })
      return started
    })
    runner.catch(() => {
      runner = undefined
    })
    return runner
  }

  const run = async (id: string) => {
    const holder = rt.newId()
    const lock = `schedule ${id}`
    if (!(await takeLock(rt, lock, holder, lockSeconds)))
      return rt.log.warn({ schedule: id }, 'a schedule is left out this time: its last run goes on')
    const renewal = repeat(rt, renewMs, async () => void (await takeLock(rt, lock, holder, lockSeconds)))
    try {
      const outcome = await (await process()).run({ kind: 'schedule', id }, () => undefined)
      if (outcome.state === 'settled') rt.log.info({ schedule: id }, 'schedule run')
      else rt.log.error({ schedule: id, outcome }, 'a schedule failed')
    } finally {
      renewal.close()
      await dropLock(rt, lock, holder)
    }
  }

  const start = (id: string) => {
    const attempt = run(id)
      .catch((error: unknown) => rt.log.error({ err: error, schedule: id }, 'a schedule could not be run'))
      .finally(() => running.delete(attempt))
    running.add(attempt)
  }

  /** Starts what is due and gives the time until the next. */
  const look = async (): Promise<number> => {
    const slots = await scheduleSlots(rt, [...crons.keys()])
    for (const slot of slots) if (slot.nextAt <= slot.now) await begin(slot)
    const waits = slots.map(({ nextAt, now }) => nextAt.getTime() - now.getTime())
    return Math.min(longestSleepMs, ...waits.map((ms) => Math.max(ms, 50)))
  }
  const begin = async (slot: Slot) => {
    const next = crons.get(slot.id)!.next(slot.now)
    if (await takeSlot(rt, slot, next ?? farAway)) start(slot.id)
  }

  const work = async () => {
    let isRegistered = false
    while (!stopping) {
      try {
        if (!isRegistered) await register(rt, known)
        isRegistered = true
        await alarm.wait(await look())
      } catch (error) {
        rt.log.warn({ err: error }, 'schedules could not be looked at yet')
        await alarm.wait(pauseAfterErrorMs)
      }
    }
  }
  const worked = known.length === 0 ? Promise.resolve() : work()

  return {
    /** Starts nothing more and waits for what runs. */
    async stop() {
      stopping = true
      alarm.ring()
      await worked
      await Promise.all(running)
    },
    async kill() {
      end.abort()
      await (await runner?.catch(() => undefined))?.ended
    },
  }
}

/** For an expression that has no next time any more. */
const farAway = new Date('9999-12-31T00:00:00Z')

async function register(rt: Runtime, known: readonly ScheduleInfo[]): Promise<void> {
  for (const { id, cron } of known) await registerSchedule(rt, id, cron, parseCron(cron).next(rt.clock()) ?? farAway)
}
