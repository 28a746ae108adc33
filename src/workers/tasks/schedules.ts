import { parseCron } from '../../adapters/cron.ts'
import { openFailures } from '../../adapters/failures.ts'
import type { Clock } from '../../db/clock.ts'
import type { UnloggedWrites } from '../../db/sql.ts'
import {
  dropLock,
  registerSchedule,
  type ScheduleSlot,
  scheduleSlots,
  takeLock,
  takeSlot,
} from '../../db/unlogged/work.ts'
import { openWakeup, orPause, repeat } from '../wakeup.ts'
import type { ScheduleInfo } from './protocol.ts'
import { type Calls, startRunner, type TaskRunner } from './runners.ts'
import type { TaskWorkerWrites } from './service.ts'

type ScheduleOptions = { readonly openCalls: () => Calls; readonly known: readonly ScheduleInfo[] }

/** Schedules of a killed worker rest for as long; a worker or database that stands still for longer loses its lock. */
const lockSeconds = 30
const renewMs = 5000
const longestSleepMs = 30_000
const shortestSleepMs = 50

/**
 * Runs the schedules: each at its time by the clock of the database, in one of all processes, and never twice at once. A
 * time that comes while the last run goes on is left out; times that passed while no worker ran are made up for by one
 * run. All of them share a process, apart from the tasks.
 */
export function openSchedules(deps: TaskWorkerWrites, { openCalls, known }: ScheduleOptions) {
  const { wake, wait } = openWakeup()
  const schedules: RunningSchedules = {
    deps,
    known,
    crons: new Map(known.map(({ id, cron }) => [id, parseCron(cron)])),
    running: new Set(),
    openCalls,
    runner: undefined,
    isStopping: false,
    end: new AbortController(),
  }
  const worked = known.length === 0 ? Promise.resolve() : work(schedules, wait)
  return {
    /** Starts nothing more and waits for what runs. */
    async stop() {
      schedules.isStopping = true
      wake()
      await worked
      await Promise.all(schedules.running)
    },
    async kill() {
      schedules.end.abort()
      await (await schedules.runner?.catch(() => undefined))?.ended
    },
  }
}

type RunningSchedules = ScheduleOptions & {
  readonly deps: TaskWorkerWrites
  readonly crons: ReadonlyMap<string, ReturnType<typeof parseCron>>
  readonly running: Set<Promise<void>>
  runner: Promise<TaskRunner> | undefined
  isStopping: boolean
  readonly end: AbortController
}

async function work(schedules: RunningSchedules, wait: (ms: number) => Promise<void>): Promise<void> {
  const { deps, known } = schedules
  const failures = openFailures(deps, 'schedules could not be read yet')
  let isRegistered = false
  const lookOnce = async () => {
    if (!isRegistered) await register(deps, known)
    isRegistered = true
    return look(schedules)
  }
  while (!schedules.isStopping) await wait(await orPause(failures, lookOnce))
}

/** For an expression that has no next time any more. */
const farAway = new Date('9999-12-31T00:00:00Z')

async function register(deps: UnloggedWrites & Clock, known: readonly ScheduleInfo[]): Promise<void> {
  for (const { id, cron } of known)
    await registerSchedule(deps, id, cron, parseCron(cron).next(deps.clock()) ?? farAway)
}

/** Starts what is due and gives the time until the next. */
async function look(schedules: RunningSchedules): Promise<number> {
  const { deps, crons } = schedules
  const slots = await scheduleSlots(deps, [...crons.keys()])
  for (const slot of slots)
    if (slot.nextAt <= slot.now && (await takeSlot(deps, slot, crons.get(slot.id)!.next(slot.now) ?? farAway)))
      start(schedules, slot.id)
  return sleepUntilNext(slots)
}

function sleepUntilNext(slots: readonly ScheduleSlot[]): number {
  const waits = slots.map(({ nextAt, now }) => nextAt.getTime() - now.getTime())
  return Math.min(longestSleepMs, ...waits.map((ms) => Math.max(ms, shortestSleepMs)))
}

function start(schedules: RunningSchedules, id: string): void {
  const { deps, running } = schedules
  const attempt = run(schedules, id)
    .catch((error: unknown) => deps.log.error({ err: error, schedule: id }, 'a schedule could not be run'))
    .finally(() => running.delete(attempt))
  running.add(attempt)
}

async function run(schedules: RunningSchedules, id: string): Promise<void> {
  const { deps } = schedules
  const holder = deps.newId()
  const lock = `schedule ${id}`
  if (!(await takeLock(deps, lock, holder, lockSeconds)))
    return deps.log.warn({ schedule: id }, 'a schedule is left out this time: its last run goes on')
  const renewal = repeat(
    deps,
    `the lock of the schedule ${id} could not be renewed`,
    renewMs,
    async () => void (await takeLock(deps, lock, holder, lockSeconds)),
  )
  try {
    const outcome = await (await runnerOf(schedules)).run({ kind: 'schedule', id }, () => undefined)
    if (outcome.state === 'settled') deps.log.info({ schedule: id }, 'schedule run')
    else deps.log.error({ schedule: id, outcome }, 'a schedule failed')
  } finally {
    renewal.close()
    await dropLock(deps, lock, holder)
  }
}

/** The process of all schedules; a new one where the last has ended or did not start. */
function runnerOf(schedules: RunningSchedules): Promise<TaskRunner> {
  const { deps, openCalls, end } = schedules
  const forget = () => {
    schedules.runner = undefined
  }
  schedules.runner ??= startRunner(deps, { openCalls, signal: end.signal }).then((started) => {
    void started.ended.then(forget)
    return started
  })
  schedules.runner.catch(forget)
  return schedules.runner
}
