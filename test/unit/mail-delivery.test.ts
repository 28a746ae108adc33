import { describe, expect, it } from 'vitest'
import { canonicalEmail } from '../../src/adapters/email-address.ts'
import { failedDelivery, mailboxOf } from '../../src/adapters/mailer.ts'

type SmtpError = Parameters<typeof failedDelivery>[0]

describe('failedDelivery', () => {
  it.each([
    ['an unknown recipient', { code: 'EENVELOPE', command: 'RCPT TO', responseCode: 550, permanent: true }],
    ['a refused message', { code: 'EMESSAGE', command: 'DATA', responseCode: 554, permanent: true }],
    ['a message that is too large', { code: 'EENVELOPE', command: 'MAIL FROM', responseCode: 552, permanent: true }],
    ['an address the library cannot send to', { code: 'EENVELOPE', command: 'API' }],
  ])('is final for %s', (_what, members) => {
    expect(failedDelivery(smtpError(members)).outcome).toBe('refused')
  })

  it.each([
    ['greylisting', { code: 'EENVELOPE', command: 'RCPT TO', responseCode: 450, permanent: false }],
    ['a busy server', { code: 'EMESSAGE', command: 'DATA', responseCode: 421, permanent: false }],
    ['a bad sequence', { code: 'EENVELOPE', command: 'RCPT TO', responseCode: 503, permanent: false }],
    ['wrong credentials', { code: 'EAUTH', command: 'AUTH PLAIN', responseCode: 535, permanent: true }],
    ['a server that wants credentials', { code: 'EENVELOPE', command: 'RCPT TO', responseCode: 530, permanent: true }],
    ['a sender that may not send', { code: 'EENVELOPE', command: 'MAIL FROM', responseCode: 550, permanent: true }],
    [
      'a greeting that turns everybody away',
      { code: 'EPROTOCOL', command: 'CONN', responseCode: 554, permanent: true },
    ],
    ['missing credentials', { code: 'EAUTH', command: 'API' }],
    ['an unknown host', { code: 'EDNS' }],
    ['a certificate nobody knows', { code: 'ETLS' }],
    ['a closed port', { code: 'ESOCKET', originalCode: 'ECONNREFUSED' }],
    ['no way to the host', { code: 'ESOCKET', originalCode: 'EHOSTUNREACH' }],
    ['no connection in time', { code: 'ETIMEDOUT', timeoutType: 'CONNECT_TIMEOUT' }],
    ['no greeting in time', { code: 'ETIMEDOUT', timeoutType: 'GREETING_TIMEOUT' }],
  ])('is worth another attempt for %s', (_what, members) => {
    expect(failedDelivery(smtpError(members)).outcome).toBe('delayed')
  })

  it.each([
    ['a cut line', { code: 'ECONNECTION', command: 'CONN' }],
    ['a reset line', { code: 'ESOCKET', originalCode: 'ECONNRESET' }],
    ['silence', { code: 'ETIMEDOUT', timeoutType: 'SOCKET_TIMEOUT' }],
    ['an abort of ours', { code: 'EABORT' }],
    ['whatever is unknown', {}],
  ])('leaves open what became of the message after %s', (_what, members) => {
    expect(failedDelivery(smtpError(members)).outcome).toBe('uncertain')
  })

  it('gives the reason on one line', () => {
    const error = Object.assign(new Error(`refused: 550 no\r\nsuch\u202e user`), {
      code: 'EENVELOPE',
    })
    const { reason } = failedDelivery(error)
    expect(reason).toMatch(/^EENVELOPE: refused: 550 no such user$/)
  })

  it('names the reason of an abort', () => {
    const cause = new Error('the worker is stopping')
    const error = Object.assign(new Error('Message sending aborted', { cause }), { code: 'EABORT' })
    expect(failedDelivery(error).reason).toBe('EABORT: Message sending aborted (the worker is stopping)')
  })
})

describe('mailboxOf', () => {
  it.each([
    ['noreply@x.example', { name: '', address: 'noreply@x.example' }],
    ['Our House <noreply@x.example>', { name: 'Our House', address: 'noreply@x.example' }],
    ['"House, Our" <noreply@x.example> ', { name: 'House, Our', address: 'noreply@x.example' }],
  ])('reads %s', (from, mailbox) => {
    expect(mailboxOf(sender(from))).toEqual(mailbox)
    expect(canonicalEmail(mailbox.address)).toBe(mailbox.address)
  })
})

function smtpError(members: object): SmtpError {
  return Object.assign(new Error('as the server said'), members) as SmtpError
}

function sender(from: string) {
  return { name: 'test', host: 'localhost', port: 25, secure: false, user: '', pass: '', from }
}
