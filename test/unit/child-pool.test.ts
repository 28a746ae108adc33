import { describe, expect, it } from 'vitest'
import {
  type ChildPoolState,
  emptyPool,
  type PoolEffect,
  type PoolInput,
  type PoolJob,
  stepPool,
} from '../../src/language/child-pool-step.ts'

const mostWaiting = 100
const bounds = { atOnce: 2, mostWaiting, mostDeaths: 2 }

const job = (id: number, turn = 'a', more: Partial<PoolJob> = {}): PoolJob => ({
  id,
  turn,
  isQuick: false,
  deaths: 0,
  ...more,
})
const asked = (id: number, turn = 'a', more: Partial<PoolJob> = {}): PoolInput => ({
  kind: 'asked',
  job: job(id, turn, more),
})
const started = (child: number): PoolInput => ({ kind: 'started', child })
const finished = (child: number): PoolInput => ({ kind: 'finished', child })
const ended = (child: number, isGuilty = false): PoolInput => ({ kind: 'ended', child, isGuilty })

/** The state after all inputs, and what the last of them led to. */
function played(...inputs: readonly PoolInput[]): { state: ChildPoolState; effects: readonly PoolEffect[] } {
  let [state, effects]: [ChildPoolState, readonly PoolEffect[]] = [emptyPool, []]
  for (const input of inputs) [state, effects] = stepPool(state, input, bounds)
  return { state, effects }
}

const run = (jobId: number, child: number): PoolEffect => ({ kind: 'run', job: jobId, child })
const start = (child: number): PoolEffect => ({ kind: 'start', child })

describe('the pool', () => {
  it('starts a process for the first job, and a second one for the next, and no third', () => {
    expect(played(asked(1)).effects).toEqual([start(1)])
    expect(played(asked(1), asked(2)).effects).toEqual([start(2)])
    expect(played(asked(1), asked(2), asked(3)).effects).toEqual([])
  })

  it('gives each process one job at a time', () => {
    expect(played(asked(1), started(1)).effects).toEqual([run(1, 1)])
    const both = [asked(1), asked(2), asked(3), started(1), started(2)]
    expect(played(...both).effects).toEqual([run(2, 2)])
    expect(played(...both, finished(2)).effects).toEqual([run(3, 2)])
    expect(played(...both, finished(2), finished(1)).effects).toEqual([])
  })

  it('serves askers in turn, and what is quick first', () => {
    const busy = [asked(1), asked(2), started(1), started(2)]
    const queued = [asked(3), asked(4), asked(5, 'b'), asked(6, 'c', { isQuick: true })]
    const order = [1, 2, 1, 2].reduce<{ inputs: PoolInput[]; ran: PoolEffect[] }>(
      ({ inputs, ran }, child) => {
        const next = [...inputs, finished(child)]
        return { inputs: next, ran: [...ran, ...played(...next).effects] }
      },
      { inputs: [...busy, ...queued], ran: [] },
    )
    expect(order.ran).toEqual([run(6, 1), run(5, 2), run(3, 1), run(4, 2)])
  })

  it('refuses what is too much, of the caller who asks for the most', () => {
    const full = Array.from({ length: mostWaiting }, (_, n) => asked(n + 1))
    expect(played(...full, asked(999)).effects).toEqual([{ kind: 'refuse', job: 999 }])
    expect(played(...full, asked(999, 'b')).effects).toEqual([{ kind: 'refuse', job: mostWaiting }])
    expect(played(...full, asked(999, 'a', { isQuick: true })).effects).toEqual([])
    const many = Array.from({ length: mostWaiting }, (_, n) => asked(n + 1, `asker ${n}`))
    expect(played(...many, asked(999, 'b')).effects).toEqual([{ kind: 'refuse', job: 999 }])
  })

  it('tries a job once more whose process died, in another one and before the rest', () => {
    const running = [asked(1), asked(2), asked(3), started(1), started(2)]
    expect(played(...running, ended(1)).effects).toEqual([start(3)])
    expect(played(...running, ended(1), started(3)).effects).toEqual([run(1, 3)])
    const again = played(...running, ended(1), started(3), ended(3))
    expect(again.effects).toEqual([{ kind: 'break', job: 1, why: 'deadly' }, start(4)])
  })

  it('does not try again what took too much, and goes on with the rest', () => {
    const { effects } = played(asked(1), asked(2), asked(3), started(1), started(2), ended(1, true))
    expect(effects).toEqual([{ kind: 'break', job: 1, why: 'deadly' }, start(3)])
  })

  it('gives up where no process can be started, and tries again for the next job', () => {
    const inputs = [asked(1), ended(1), ended(2), ended(3)]
    expect(played(...inputs.slice(0, 2)).effects).toEqual([start(2)])
    expect(played(...inputs).effects).toEqual([{ kind: 'break', job: 1, why: 'no process' }])
    expect(played(...inputs, asked(2)).effects).toEqual([start(4)])
  })

  it('forgets what no one waits for, and ends what no one uses', () => {
    const busy = [asked(1), asked(2), asked(3), started(1), started(2)]
    expect(played(...busy, { kind: 'abandoned', job: 3 }, finished(1)).effects).toEqual([])
    const idle = played(...busy, { kind: 'abandoned', job: 3 }, finished(1), { kind: 'unused for long' })
    expect(idle.effects).toEqual([{ kind: 'end', child: 1 }])
    expect(idle.state.children.map(({ id }) => id)).toEqual([2])
    expect(stepPool(idle.state, ended(1), bounds)).toEqual([idle.state, []])
  })

  it('starts all processes that it may have where there will be work', () => {
    const soon: PoolInput = { kind: 'wanted soon' }
    expect(played(soon).effects).toEqual([start(1), start(2)])
    expect(played(asked(1), started(1), soon).effects).toEqual([start(2)])
    expect(played(soon, soon).effects).toEqual([])
  })

  it('replaces a process that ends after its job', () => {
    const retired: PoolInput = { kind: 'retired', child: 1 }
    expect(played(asked(1), started(1), asked(2), asked(3), retired).effects).toEqual([start(3)])
    expect(played(asked(1), started(1), retired, ended(1)).effects).toEqual([])
  })
})
