import { describe, expect, it } from 'vitest'
import {
  beginning,
  type LiveReportInput,
  leastPauseMs,
  type ReportState,
  step,
} from '../../src/api/realtime/live-report.ts'

const book = new Set(['book'])
const evaluated = (tag: string, at: number): LiveReportInput => ({ is: 'evaluated', tag, reads: book, at })
const changed = (at: number, ...collections: string[]): LiveReportInput => ({
  is: 'changed',
  collections: new Set(collections),
  at,
})
const stateAfter = (state: ReportState, ...inputs: readonly LiveReportInput[]): ReportState =>
  inputs.reduce((before, input) => step(before, input)[0], state)
const effectsOf = (state: ReportState, input: LiveReportInput) => step(state, input)[1]

const idle = stateAfter(beginning, evaluated('a', 1000))

describe('given a report whose first evaluation is under way', () => {
  it('when it is evaluated, then nothing is sent: the result is the answer', () => {
    expect(step(beginning, evaluated('a', 1000))).toEqual([
      { phase: 'idle', stale: false, tag: 'a', reads: book, restsUntil: 1000 + leastPauseMs },
      [],
    ])
  })

  it('when anything changes meanwhile, then it is evaluated again after the pause', () => {
    const stale = stateAfter(beginning, changed(900, 'author'))
    expect(effectsOf(stale, evaluated('a', 1000))).toEqual([{ do: 'wake', inMs: leastPauseMs }])
  })
})

describe('given a report at rest', () => {
  it('when a collection changes that it does not read, then nothing happens', () => {
    expect(step(idle, changed(2000, 'author'))).toEqual([idle, []])
  })

  it('when one changes that it reads, then it is evaluated at once, or at the end of the pause', () => {
    expect(effectsOf(idle, changed(2000, 'author', 'book'))).toEqual([{ do: 'wake', inMs: 0 }])
    expect(effectsOf(idle, changed(1100, 'book'))).toEqual([{ do: 'wake', inMs: leastPauseMs - 100 }])
  })

  it('when its reader may see something else, then it is evaluated too', () => {
    expect(effectsOf(idle, { is: 'touched', at: 2000 })).toEqual([{ do: 'wake', inMs: 0 }])
  })
})

describe('given a report that waits', () => {
  const waiting = stateAfter(idle, changed(1100, 'book'))

  it('when more changes, then nothing is added', () => {
    expect(step(waiting, changed(1200, 'book'))).toEqual([waiting, []])
  })

  it('when its time has come, then it is evaluated', () => {
    expect(effectsOf(waiting, { is: 'due', isFree: true, at: 1250 })).toEqual([{ do: 'evaluate' }])
  })

  it('when its client has not taken the last result, then it waits for another pause', () => {
    const [later, effects] = step(waiting, { is: 'due', isFree: false, at: 1250 })
    expect(effects).toEqual([{ do: 'wake', inMs: leastPauseMs }])
    expect(effectsOf(later, { is: 'due', isFree: true, at: 1500 })).toEqual([{ do: 'evaluate' }])
  })
})

describe('given a report that is evaluated again', () => {
  const evaluating = stateAfter(idle, changed(2000, 'book'), { is: 'due', isFree: true, at: 2000 })

  it('when the result is another one, then it is sent', () => {
    expect(effectsOf(evaluating, evaluated('b', 2010))).toEqual([{ do: 'send' }])
  })

  it('when the result is the same, then nothing is sent', () => {
    expect(effectsOf(evaluating, evaluated('a', 2010))).toEqual([])
  })

  it('when something changes meanwhile, then it is sent and evaluated once more', () => {
    const stale = stateAfter(evaluating, changed(2005, 'book'), changed(2006, 'book'))
    expect(effectsOf(stale, evaluated('b', 2010))).toEqual([{ do: 'send' }, { do: 'wake', inMs: leastPauseMs }])
  })
})
