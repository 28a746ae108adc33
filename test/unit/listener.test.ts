import { describe, expect, it } from 'vitest'
import {
  type ClockMoment,
  type HearingState,
  isLiveAt,
  liveForMs,
  proofsAsked,
  step,
  unheard,
} from '../../src/db/listener.ts'

type Input = Parameters<typeof step>[1]

const at = (ms: number, wallMs = ms): ClockMoment => ({ ms, wallMs })
const answered = (asked: ClockMoment, isProof: boolean): Input => ({ is: 'answered', asked, isProof })
const hearingAfter = (hearing: HearingState, ...inputs: readonly Input[]): HearingState =>
  inputs.reduce((before, input) => step(before, input)[0], hearing)
const effectsOf = (hearing: HearingState, input: Input) => step(hearing, input)[1]

const hearing = hearingAfter(unheard, { is: 'heard' }, { is: 'eased', asked: at(100), isProof: true })

describe('given a connection that has not heard anything yet', () => {
  it('when a heartbeat is due, then it is to prove that it hears', () => {
    expect(effectsOf(unheard, { is: 'due' })).toEqual([{ do: 'prove' }])
  })

  it('when the proof is not there yet, then a question is asked that proves nothing, and soon the next', () => {
    expect(effectsOf(unheard, { is: 'sent' })).toEqual([{ do: 'ask', isProof: false }])
    const asked = hearingAfter(unheard, { is: 'sent' }, answered(at(100), false))
    expect(isLiveAt(asked, 100, 100)).toBe(false)
    expect(effectsOf(asked, answered(at(100), false))).toEqual([{ do: 'wait', ms: 20 }])
  })

  it('when it never hears, then operators are warned once, and it is asked less often', () => {
    const sent = Array.from({ length: proofsAsked - 2 }, (): Input => ({ is: 'sent' }))
    const [deaf, effects] = step(hearingAfter(unheard, ...sent), { is: 'sent' })
    expect(effects).toEqual([{ do: 'warn' }, { do: 'ask', isProof: false }])
    expect(effectsOf(deaf, { is: 'sent' })).toEqual([{ do: 'ask', isProof: false }])
    expect(effectsOf(deaf, answered(at(100), false))).toEqual([{ do: 'wait', ms: 400 }])
  })

  it('when it has heard, then the first answer counts only after its commits are eased', () => {
    const heard = hearingAfter(unheard, { is: 'heard' })
    expect(effectsOf(heard, { is: 'sent' })).toEqual([{ do: 'ask', isProof: true }])
    const [waiting, effects] = step(heard, answered(at(100), true))
    expect([isLiveAt(waiting, 100, 100), effects]).toEqual([false, [{ do: 'ease', asked: at(100) }]])
    expect(isLiveAt(hearing, 100, 100)).toBe(true)
  })
})

describe('given a connection that hears', () => {
  it('when a heartbeat is due, then it is only asked, and its answer counts from when it was asked', () => {
    expect(effectsOf(hearing, { is: 'due' })).toEqual([{ do: 'ask', isProof: true }])
    const [next, effects] = step(hearing, answered(at(500), true))
    expect(effects).toEqual([{ do: 'wait', ms: 400 }])
    expect([
      isLiveAt(next, 500 + liveForMs - 1, 500 + liveForMs - 1),
      isLiveAt(next, 500 + liveForMs, 500 + liveForMs),
    ]).toEqual([true, false])
  })

  it('when one of the clocks has gone on alone, then it is not live', () => {
    expect(isLiveAt(hearing, 101, 100 + liveForMs)).toBe(false)
    expect(isLiveAt(hearing, 100 + liveForMs, 101)).toBe(false)
    expect(isLiveAt(hearing, 101, 100 - liveForMs)).toBe(false)
  })

  it('when the database refuses its question, then operators are warned, and it goes on', () => {
    const [next, effects] = step(hearing, { is: 'refused' })
    expect(effects).toEqual([{ do: 'warn' }, { do: 'wait', ms: 400 }])
    expect(effectsOf(next, { is: 'refused' })).toEqual([{ do: 'wait', ms: 400 }])
  })

  it('when it is lost, then the next one has to prove everything anew, and the warning comes once', () => {
    const warned = hearingAfter(hearing, { is: 'refused' }, { is: 'lost' })
    expect(warned).toEqual({ ...unheard, warned: true })
  })
})
