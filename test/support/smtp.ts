import { once } from 'node:events'
import type { Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import PostalMime, { type Email } from 'postal-mime'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { afterAll } from 'vitest'

/**
 * What the server does with one message. `hang` never answers, `reset` cuts the line before the answer, `hold` accepts
 * once the promise is fulfilled, or the one that is made when the message is there; a code refuses: the recipient, or the message after its data, and may quote what
 * `quoting` finds in its text.
 */
export type SmtpAnswer =
  | 'accept'
  | 'hang'
  | 'reset'
  | { readonly hold: Promise<void> | (() => Promise<void>) }
  | { readonly code: number; readonly at: 'rcpt' | 'data'; readonly quoting?: RegExp }

export type ReceivedMail = Email & { readonly raw: string; readonly recipients: readonly string[] }

export type SmtpDouble = {
  readonly port: number
  /** Messages whose data came in, answered or not. */
  readonly received: readonly ReceivedMail[]
  /** Those of them that were answered with 250. */
  readonly accepted: readonly ReceivedMail[]
  /** How the next messages are answered, in this order; all others are accepted. */
  answer(...answers: SmtpAnswer[]): void
  /** Forgets what came in and what is left of the script. */
  forget(): void
  /** Closes the port and all connections. */
  stop(): Promise<void>
  /** Opens the same port again. */
  start(): Promise<void>
  /** Variables of a sender named `test` that uses this server. */
  readonly env: Readonly<Record<string, string>>
}

/** A real SMTP server on 127.0.0.1 that follows a script; stopped after the test file. */
export async function startSmtp(): Promise<SmtpDouble> {
  const script: SmtpAnswer[] = []
  const received: ReceivedMail[] = []
  const accepted: ReceivedMail[] = []
  let port = 0
  let server: SMTPServer | undefined
  const start = async () => {
    server = openServer(script, received, accepted)
    const listening = server.listen(port, '127.0.0.1')
    await once(listening, 'listening')
    port = (listening.address() as { port: number }).port
  }
  const stop = async () => {
    const closing = server
    server = undefined
    if (closing !== undefined) await new Promise<void>((resolve) => closing.close(resolve))
  }
  await start()
  stops.push(stop)
  const forget = () => {
    for (const list of [script, received, accepted]) list.length = 0
  }
  const answer = (...answers: SmtpAnswer[]) => void script.push(...answers)
  return { port, received, accepted, answer, forget, stop, start, env: senderEnv(port) }
}

function openServer(script: SmtpAnswer[], received: ReceivedMail[], accepted: ReceivedMail[]): SMTPServer {
  const onRcptTo: SMTPServerOptions['onRcptTo'] = (_address, _session, done) => {
    const next = script[0]
    if (typeof next !== 'object' || !('code' in next) || next.at !== 'rcpt') return done()
    script.shift()
    done(refusal(next.code))
  }
  const onData: SMTPServerOptions['onData'] = async (stream, session, done) => {
    const raw = await buffer(stream).catch((error: Error & { code?: string }) => {
      if (error.code !== 'ECONNECTION') throw error
    })
    // Its sender has ended in the middle of it.
    if (raw === undefined) return
    const recipients = session.envelope.rcptTo.map(({ address }) => address)
    const mail = { ...(await PostalMime.parse(raw)), raw: raw.toString(), recipients }
    received.push(mail)
    const answer = script.shift() ?? 'accept'
    if (answer === 'hang') return
    if (answer === 'reset') return socketOf(server, session.id).destroy()
    if (typeof answer === 'object' && 'code' in answer)
      return done(refusal(answer.code, answer.quoting?.exec(mail.text ?? '')?.[0]))
    if (typeof answer === 'object') await (typeof answer.hold === 'function' ? answer.hold() : answer.hold)
    accepted.push(mail)
    done(null, 'OK: kept')
  }
  const server: SMTPServer = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    closeTimeout: 50,
    onRcptTo,
    onData,
  })
  // A line that a test cuts is an error to the library.
  server.on('error', (error: Error & { code?: string }) => {
    if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') throw error
  })
  return server
}

function refusal(code: number, quoted = ''): Error {
  return Object.assign(new Error(`as the script says ${quoted}`.trim()), { responseCode: code })
}

function socketOf(server: SMTPServer, sessionId: string): Socket {
  const connections = [...(server.connections as Iterable<{ id: string; _socket: Socket }>)]
  return connections.find(({ id }) => id === sessionId)!._socket
}

function senderEnv(port: number): Record<string, string> {
  return {
    MAIL_SENDERS_ENABLED: 'test',
    TEST_SMTP_HOST: '127.0.0.1',
    TEST_SMTP_PORT: String(port),
    TEST_SMTP_USER: 'nobody',
    TEST_SMTP_PASS: 'never asked for',
    TEST_FROM_ADDRESS: 'noreply@daybook.example',
  }
}

const stops: (() => Promise<void>)[] = []
afterAll(async () => void (await Promise.all(stops.map((stop) => stop()))))
