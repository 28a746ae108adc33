import { describe, expect, it } from 'vitest'
import type { MailDelivery, SmtpSender } from '../../src/adapters/mailer.ts'
import {
  begun,
  ended,
  healthOf,
  newLane,
  openLanes,
  roomOf,
  type SenderLane,
} from '../../src/features/messaging/mail/senders.ts'

const accepted: MailDelivery = { outcome: 'accepted', response: '250' }
const refused: MailDelivery = { outcome: 'refused', reason: '550', problem: 'refused message' }
const silent: MailDelivery = { outcome: 'delayed', reason: 'no greeting', problem: 'no answer' }
const unmade: MailDelivery = { outcome: 'delayed', reason: 'x', problem: 'not composed' }

/** A lane after attempts that took a second each, one after the other from second 1 on. */
function attempted(...deliveries: (MailDelivery | undefined)[]): SenderLane {
  return deliveries.reduce<SenderLane>((lane, delivery, i) => {
    const at = (i + 1) * 1000
    return ended(begun(lane, at - 999), at - 999, delivery, at)
  }, newLane)
}

describe('a lane', () => {
  it('gives five places until its server has answered, then twenty', () => {
    expect([healthOf(newLane, 0), roomOf(newLane, 0)]).toEqual(['unproven', 5])
    expect(roomOf(begun(begun(newLane, 0), 0), 0)).toBe(3)
    for (const answer of [accepted, refused])
      expect([healthOf(attempted(answer), 9000), roomOf(attempted(answer), 9000)]).toEqual(['proven', 20])
    expect(healthOf(attempted(unmade, undefined), 9000)).toBe('unproven')
  })

  it('gives five again while a server that has answered is silent', () => {
    const busy = begun(begun(begun(attempted(accepted), 1000), 1000), 2000)
    expect([healthOf(busy, 6000), roomOf(busy, 6000)]).toEqual(['proven', 17])
    expect([healthOf(busy, 6001), roomOf(busy, 6001)]).toEqual(['unproven', 2])
    const full = [1, 2, 3].reduce((lane) => begun(lane, 2000), busy)
    expect([healthOf(full, 6001), roomOf(full, 6001)]).toEqual(['unproven', 0])
    const answered = ended(busy, 2000, accepted, 7000)
    expect([healthOf(answered, 12_000), roomOf(answered, 12_000)]).toEqual(['proven', 18])
  })

  it('closes after two failures in a row, for longer each time, with one trial between', () => {
    expect(healthOf(attempted(silent), 1000)).toBe('unproven')
    expect(healthOf(attempted(silent, accepted, silent), 3000)).toBe('proven')
    let lane = attempted(silent, silent)
    let now = 2000
    for (const seconds of [5, 10, 20, 40, 80, 160, 300, 300]) {
      expect(healthOf(lane, now + seconds * 1000 - 1)).toBe('closed')
      now += seconds * 1000
      expect([healthOf(lane, now), roomOf(lane, now)]).toEqual(['trial', 1])
      expect(roomOf(begun(lane, now), now)).toBe(0)
      lane = ended(begun(lane, now), now, silent, now)
    }
    expect(lane.failure).toBe(silent)
    const back = ended(begun(lane, now), now, refused, now)
    expect([healthOf(back, now), roomOf(back, now), back.failure]).toEqual(['proven', 20, undefined])
  })

  it('counts attempts that fail together once', () => {
    let lane = attempted(accepted)
    for (let i = 0; i < 20; i += 1) lane = begun(lane, 2000)
    for (let i = 0; i < 20; i += 1) lane = ended(lane, 2000, silent, 32_000)
    expect(lane).toMatchObject({ running: [], failures: 2, closedUntil: 37_000 })
  })
})

describe('the lanes of a worker', () => {
  const sender = (name: string, host = `${name}.example`) => ({ name, host }) as SmtpSender
  function worker(senders: Record<string, SmtpSender>) {
    const time = { now: 0 }
    const lanes = openLanes(
      (group) => senders[group] ?? sender('common'),
      () => time.now,
    )
    let jobs = 0
    const enter = (group: string) => {
      jobs += 1
      return lanes.enter(String(jobs), group) ? String(jobs) : undefined
    }
    const send = (group: string, delivery: MailDelivery) => lanes.leave(enter(group)!, delivery)
    return { lanes, time, enter, send, senders }
  }

  it('give groups of one sender one lane, and others their own', () => {
    const { lanes, enter, send } = worker({ own: sender('own') })
    expect(['a', 'b', 'a', 'b', 'a', 'b', 'own'].map(enter)).toEqual(['1', '2', '3', '4', '5', undefined, '7'])
    expect(lanes.full()).toEqual(['a', 'b'])
    lanes.leave('1', accepted)
    expect([lanes.full(), lanes.room()]).toEqual([[], 4])
    lanes.leave('7', accepted)
    send('own', accepted)
    expect(lanes.room()).toBe(16)
  })

  it('let senders without answers take forty of sixty places together', () => {
    const { lanes, enter, send } = worker(
      Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`t${i}`, sender(`t${i}`)])),
    )
    send('good', accepted)
    for (let i = 0; i < 40; i += 1) expect(enter(`t${i % 8}`)).toBeDefined()
    expect(enter('t20')).toBeUndefined()
    expect(lanes.full()).toContain('t20')
    expect(lanes.full()).not.toContain('good')
    for (let i = 0; i < 20; i += 1) expect(enter('good')).toBeDefined()
    expect(enter('good')).toBeUndefined()
  })

  it('let a closed sender’s mails fail at once, and try it again when its settings change', () => {
    const { lanes, time, send, enter, senders } = worker({ t: sender('t') })
    send('t', silent)
    send('t', silent)
    expect([lanes.closed('t'), lanes.closed('other'), lanes.full()]).toEqual([silent, undefined, []])
    for (let i = 0; i < 50; i += 1) expect(enter('t')).toBeDefined()
    lanes.forgetSenders()
    expect(lanes.closed('t')).toBe(silent)
    senders.t = sender('t', 'mended.example')
    expect(lanes.closed('t')).toBe(silent)
    lanes.forgetSenders()
    expect(lanes.closed('t')).toBeUndefined()
    time.now = 1
    expect(lanes.closed('t')).toBeUndefined()
  })
})
