import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { afterEach, describe, expect, it } from 'vitest'
import { type Mailer, openMailer } from '../../src/adapters/mailer.ts'

/** Mail servers that speak TLS, at once (`_SMTP_SECURE`) or by STARTTLS, with a certificate that is trusted or is not. */

const [key, cert] = ['key', 'certificate'].map((name) => readFileSync(`test/fixtures/tls/${name}.pem`, 'utf8'))
const trusted = getCACertificates('default')
const closers: (() => void)[] = []

afterEach(() => {
  for (const close of closers.splice(0)) close()
  setDefaultCACertificates(trusted)
})

type Seen = { secure: boolean[]; passwords: (string | undefined)[]; messages: number }

async function startServer(options: SMTPServerOptions): Promise<{ port: number; seen: Seen }> {
  const seen: Seen = { secure: [], passwords: [], messages: 0 }
  const server = new SMTPServer({
    key,
    cert,
    ...options,
    onAuth: ({ password }, session, done) => {
      seen.secure.push(session.secure)
      seen.passwords.push(password ?? undefined)
      done(null, { user: 'u' })
    },
    onData: (stream, _session, done) => {
      seen.messages += 1
      stream.resume().once('end', () => done())
    },
  })
  server.on('error', () => undefined)
  const listening = server.listen(0, '127.0.0.1')
  await once(listening, 'listening')
  closers.push(() => server.close())
  return { port: (listening.address() as { port: number }).port, seen }
}

function send(port: number, secure: boolean): ReturnType<Mailer['send']> {
  const mailer = openMailer()
  closers.push(() => mailer.close())
  const sender = { name: 'test', host: 'localhost', port, secure, user: 'u', pass: 'a secret', from: 'd@mail.example' }
  const content = { subject: 'S', html: '<p>H</p>', text: 'T', inline: [], attachments: [] }
  const mail = { fromName: 'D', to: 'a@mail.example', messageId: '<1@mail.example>', ...content }
  return mailer.send(sender, mail, AbortSignal.timeout(10_000))
}

describe.each([
  ['at once', true],
  ['by STARTTLS', false],
])('TLS %s', (_how, secure) => {
  it('carries password and mail to a server whose certificate is trusted', async () => {
    setDefaultCACertificates([...trusted, cert!])
    const { port, seen } = await startServer({ secure })
    expect(await send(port, secure)).toMatchObject({ outcome: 'accepted' })
    expect(seen).toEqual({ secure: [true], passwords: ['a secret'], messages: 1 })
  })

  it('tells nothing to one whose certificate is not; the mail waits', async () => {
    const { port, seen } = await startServer({ secure })
    expect(await send(port, secure)).toMatchObject({
      outcome: 'delayed',
      problem: 'no TLS',
    })
    expect(seen).toEqual({ secure: [], passwords: [], messages: 0 })
  })
})

it('waits where a server does not speak TLS at once as configured', async () => {
  const { port, seen } = await startServer({ secure: false, disabledCommands: ['STARTTLS'] })
  expect(await send(port, true)).toMatchObject({ outcome: 'delayed' })
  expect(seen).toEqual({ secure: [], passwords: [], messages: 0 })
})
