import { describe, expect, it } from 'vitest'
import type { MailDelivery } from '../../src/adapters/mailer.ts'
import { type MailParties, refusalOf, statusAfter } from '../../src/features/messaging/mail/jobs.ts'

type Mail = Parameters<typeof refusalOf>[0]

const failed = (outcome: 'refused' | 'delayed' | 'uncertain') => ({ outcome, reason: 'no' }) as MailDelivery
const unsure = { mayHaveArrived: true, isLast: false }
const first = { mayHaveArrived: false, isLast: false }

describe('a mail after an attempt', () => {
  it.each([
    [
      'is sent when the server has accepted it',
      { outcome: 'accepted', response: 'ok' } as MailDelivery,
      unsure,
      'sent',
    ],
    ['has failed when the server refused it', failed('refused'), first, 'failed'],
    ['waits when it was delayed', failed('delayed'), first, 'queued'],
    ['may have arrived when the answer did not come', failed('uncertain'), first, 'sending'],
    ['may have arrived when an earlier answer did not come', failed('delayed'), unsure, 'sending'],
    ['has failed after the last attempt', failed('delayed'), { ...first, isLast: true }, 'failed'],
    ['has failed after the last attempt without an answer', failed('uncertain'), { ...unsure, isLast: true }, 'failed'],
  ])('%s', (_name, delivery, attempt, status) => {
    expect(statusAfter(delivery, attempt)).toEqual({ status, reason: status === 'sent' ? null : 'no' })
  })
})

describe('a claimed mail', () => {
  const ada = { firstName: 'Ada', lastName: null, email: 'ada@mail.example', phone: null }
  const mail: Mail = { userId: 'ada', tenantId: null, email: ada.email }
  const known: MailParties = {
    addressee: undefined,
    person: ada,
    wantedEmail: undefined,
    hasTenant: false,
    hasLeft: false,
  }

  it.each<[string, Partial<Mail>, Partial<MailParties>]>([
    ['goes to the address of its account', {}, {}],
    ['goes to the address that is to be confirmed', { email: 'new@x' }, { addressee: 'wanted', wantedEmail: 'new@x' }],
    ['goes to the address that the account had', { email: 'old@x' }, { addressee: 'former' }],
    ['goes to anybody without an account', { userId: null, email: 'x@x' }, { person: undefined }],
    ['goes to a member of its tenant', { tenantId: 'acme' }, { hasTenant: true }],
  ])('%s', (_name, changes, facts) => {
    expect(refusalOf({ ...mail, ...changes }, { ...known, ...facts })).toBeUndefined()
  })

  it.each<[string, Partial<Mail>, Partial<MailParties>, RegExp]>([
    ['whose account is gone', {}, { person: undefined }, /account is gone/],
    ['whose account is gone, to its former address', {}, { addressee: 'former', person: undefined }, /account is gone/],
    ['whose account has another address', { email: 'old@x' }, {}, /another address/],
    ['whose new address is not wanted any more', { email: 'new@x' }, { addressee: 'wanted' }, /another address/],
    ['whose tenant is gone', { tenantId: 'acme' }, {}, /tenant is gone/],
    ['whose account left the tenant', { tenantId: 'acme' }, { hasTenant: true, hasLeft: true }, /left/],
  ])('%s is refused', (_name, changes, facts, reason) => {
    expect(refusalOf({ ...mail, ...changes }, { ...known, ...facts })).toMatch(reason)
  })
})
