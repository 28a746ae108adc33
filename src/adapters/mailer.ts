import { connect, type Socket } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import type { NodemailerError } from 'nodemailer'
import type { MailSender } from '../config/families.ts'
import { onFirstUse } from '../language/once.ts'
import { ForbiddenAddressError, isForbiddenLiteral, lookUpPublic } from './network-addresses.ts'

const nodemailer = onFirstUse<typeof import('nodemailer')>('nodemailer')

/**
 * `publicOnly`: its host came over the API, so only mail ports of the public internet are reached. `isPasswordLost`: no key opens
 * its password, so its server is not asked.
 */
export type SmtpSender = MailSender & { readonly publicOnly?: boolean; readonly isPasswordLost?: boolean }

/** An image that travels within its mail. */
export type InlineImage = { readonly cid: string; readonly contentType: string; readonly content: Buffer }

/** A file that comes with a mail. */
export type MailAttachment = { readonly filename: string; readonly contentType: string; readonly content: Buffer }

/** A finished mail to one recipient. */
export type OutgoingMail = {
  /** Display name, used when the sender's address brings none. */
  readonly fromName: string
  readonly to: string
  readonly subject: string
  readonly html: string
  readonly text: string
  /** Images of the HTML, which names them as `cid:`. */
  readonly inline: readonly InlineImage[]
  readonly attachments: readonly MailAttachment[]
  /** With angle brackets. The same for every attempt to send this mail. */
  readonly messageId: string
}

/**
 * The outcome of an attempt. `accepted`: the server has it. `refused`: the server will never take this message.
 * `delayed`: it surely was not taken, another attempt may succeed. `uncertain`: the line broke before the answer.
 */
export type MailDelivery =
  | { readonly outcome: 'accepted'; readonly response: string }
  | { readonly outcome: 'refused' | 'delayed' | 'uncertain'; readonly reason: string; readonly problem: MailProblem }

/** The problems, each in words that repeat nothing of what the other side has said. */
export const mailProblems = {
  'no sender': 'No mail sender is configured',
  'not composed': 'The mail could not be composed',
  'lost password':
    'The SMTP password cannot be read with the present SECRET_KEY: set it again, or set SECRET_KEY_PREVIOUS to the former key',
  'forbidden server': 'The server must not be reached: it is not a mail port of the public internet',
  unreachable: 'The server could not be reached',
  'no answer': 'The server did not answer in time',
  'no TLS': 'No secure connection to the server could be made',
  'refused credentials': 'The server refused the user name or password',
  'refused message': 'The server refused the message',
  'connection failed': 'The connection to the server failed',
} as const

export type MailProblem = keyof typeof mailProblems

export type Mailer = {
  /** Sends over a pooled connection. Does not throw; aborting makes it `uncertain`. */
  send(sender: SmtpSender, mail: OutgoingMail, signal: AbortSignal): Promise<MailDelivery>
  close(): void
}

/** Milliseconds. Without an answer for `silence` a connection is given up. */
type MailerTimeouts = { readonly connect: number; readonly greeting: number; readonly silence: number }

const defaultTimeouts: MailerTimeouts = { connect: 30_000, greeting: 30_000, silence: 120_000 }
const connectionsPerSender = 5

/** Opens connections when they are needed and keeps them for a minute. A sender that has changed gets new ones. */
export function openMailer(timeouts: MailerTimeouts = defaultTimeouts): Mailer {
  const opened = new Map<string, { sender: SmtpSender; transport: ReturnType<typeof openTransport> }>()
  const transportOf = (sender: SmtpSender) => {
    const known = opened.get(sender.name)
    if (known !== undefined && isDeepStrictEqual(known.sender, sender)) return known.transport
    // Messages on their way are still sent.
    known?.transport.close()
    const transport = openTransport(sender, timeouts)
    opened.set(sender.name, { sender, transport })
    return transport
  }
  return {
    async send(sender, mail, signal) {
      if (sender.isPasswordLost)
        return { outcome: 'delayed', reason: mailProblems[lostPassword], problem: lostPassword }
      try {
        const { response } = await transportOf(sender).sendMail({ ...envelopeAndContent(sender, mail), signal })
        return { outcome: 'accepted', response }
      } catch (error) {
        return failedDelivery(error as NodemailerError)
      }
    },
    close() {
      for (const { transport } of opened.values()) transport.close()
    },
  }
}

const lostPassword = 'lost password'

const quick: MailerTimeouts = { connect: 5000, greeting: 5000, silence: 5000 }
const longestCheckMs = 10_000

/**
 * Connects and signs in, and sends nothing: why the sender would not work, undefined when it would. Does not throw, and
 * ends within `longestMs` whatever the server does: one that says a word now and then is never silent.
 */
export async function checkSender(sender: SmtpSender, longestMs = longestCheckMs): Promise<MailProblem | undefined> {
  if (sender.isPasswordLost) return lostPassword
  let opened: Socket | undefined
  const getSocket = openSockets(sender, quick.connect, (socket) => {
    opened = socket
  })
  const transport = openTransport(sender, quick, getSocket)
  const deadline = Promise.withResolvers<MailProblem>()
  const timer = setTimeout(() => deadline.resolve('no answer'), longestMs)
  const verified = transport.verify().then(
    () => undefined,
    (error: NodemailerError) => problemOf(error),
  )
  try {
    return await Promise.race([verified, deadline.promise])
  } finally {
    clearTimeout(timer)
    transport.close()
    // By itself the library keeps a line on which it waits for the server.
    opened?.destroySoon()
  }
}

/**
 * Judges an SMTP error. Only an answer of the server about this message or its recipient ends it; refused credentials,
 * senders, TLS and the like are faults of the configuration, which an operator can fix meanwhile.
 */
export function failedDelivery(error: NodemailerError): Exclude<MailDelivery, { outcome: 'accepted' }> {
  return { outcome: outcomeOf(error), reason: reasonOf(error), problem: problemOf(error) }
}

function problemOf(error: NodemailerError): MailProblem {
  const { code, responseCode, timeoutType, originalCode } = error
  if (code === forbidden) return 'forbidden server'
  if (code === 'EAUTH' || code === 'ENOAUTH' || authenticationReplies.has(responseCode)) return 'refused credentials'
  if (responseCode !== undefined || code === 'EENVELOPE' || code === 'EMESSAGE') return 'refused message'
  if (code === 'ETLS' || isHandshakeFailure(error)) return 'no TLS'
  if (timeoutType === 'SOCKET_TIMEOUT' || timeoutType === 'GREETING_TIMEOUT' || code === 'EABORT') return 'no answer'
  const isUnreachable = code === 'EDNS' || timeoutType === 'CONNECT_TIMEOUT' || unreachable.has(originalCode)
  return isUnreachable ? 'unreachable' : 'connection failed'
}

function outcomeOf(error: NodemailerError): 'refused' | 'delayed' | 'uncertain' {
  if (error.responseCode !== undefined) return error.permanent && isAboutMessage(error) ? 'refused' : 'delayed'
  if (error.code === 'EENVELOPE' || error.code === 'EMESSAGE') return 'refused'
  return isBeforeMessage(error) ? 'delayed' : 'uncertain'
}

/** Replies to any command that ask for (another) authentication: 530, 534, 535, 538. */
const authenticationReplies: ReadonlySet<number | undefined> = new Set([530, 534, 535, 538])
const messageTooLarge = 552

function isAboutMessage({ command, responseCode }: NodemailerError): boolean {
  if (authenticationReplies.has(responseCode)) return false
  return command === 'RCPT TO' || command === 'DATA' || (command === 'MAIL FROM' && responseCode === messageTooLarge)
}

/** Our own code for a server that must not be reached. */
const forbidden = 'EFORBIDDEN'
const codesBeforeMessage: ReadonlySet<string | undefined> = new Set([
  ...['EDNS', 'ETLS', 'EAUTH', 'ENOAUTH', 'ECONFIG', forbidden],
])
const waitsBeforeMessage: ReadonlySet<string | undefined> = new Set([
  'CONNECT_TIMEOUT',
  'GREETING_TIMEOUT',
  'UPGRADE_TIMEOUT',
])
const unreachable: ReadonlySet<string | undefined> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EAI_AGAIN',
])

function isBeforeMessage(error: NodemailerError): boolean {
  const { code, timeoutType, originalCode } = error
  if (codesBeforeMessage.has(code) || waitsBeforeMessage.has(timeoutType)) return true
  return unreachable.has(originalCode) || isHandshakeFailure(error)
}

/** A certificate that does not hold, or a server that speaks no TLS that we do: only known while a line is secured. */
function isHandshakeFailure({ originalCode = '' }: NodemailerError): boolean {
  return (
    /^(CERT_|SELF_SIGNED_|DEPTH_ZERO_|UNABLE_TO_|ERR_TLS_CERT_)|HOSTNAME_MISMATCH$/.test(originalCode) ||
    /^ERR_SSL_(WRONG_VERSION_NUMBER|UNSUPPORTED_PROTOCOL|.*ALERT_(PROTOCOL_VERSION|HANDSHAKE_FAILURE))$/.test(
      originalCode,
    )
  )
}

/** One line for people: the server's words if it said any. */
function reasonOf({ message, cause, code }: NodemailerError): string {
  const why = cause instanceof Error ? ` (${cause.message})` : ''
  const text = `${code === undefined ? '' : `${code}: `}${message}${why}`
  return text.replace(/[\p{C}\s]+/gu, ' ')
}

function openTransport(
  sender: SmtpSender,
  timeouts: MailerTimeouts,
  getSocket = sender.publicOnly ? openSockets(sender, timeouts.connect) : undefined,
) {
  return nodemailer().createTransport({
    pool: true,
    ...(getSocket !== undefined && { getSocket }),
    host: sender.host,
    port: sender.port,
    secure: sender.secure,
    auth: { user: sender.user, pass: sender.pass },
    // Used for STARTTLS as well, which is taken whenever the server offers it.
    tls: { minVersion: 'TLSv1.2' },
    maxConnections: connectionsPerSender,
    // Only for a pooled connection that turns out to be closed before a byte of the message was sent.
    maxRequeues: 1,
    idleTimeout: 60_000,
    connectionTimeout: timeouts.connect,
    dnsTimeout: timeouts.connect,
    greetingTimeout: timeouts.greeting,
    socketTimeout: timeouts.silence,
    // A template must not be able to attach files of this machine or what another one serves.
    disableFileAccess: true,
    disableUrlAccess: true,
    maxRecipients: 1,
  })
}

type GetSocket = (options: unknown, done: (error: Error | null, socket: { connection: Socket } | false) => void) => void

/** Where mail servers take mail from programs: other ports are other services. */
const mailPorts: ReadonlySet<number> = new Set([25, 465, 587, 2465, 2525, 2587])

/** Connects to what the name leads to at this moment, if that is allowed; TLS is the library's, on top. */
function openSockets(
  { host, port, publicOnly = false }: SmtpSender,
  connectMs: number,
  onOpening: (socket: Socket) => void = () => undefined,
): GetSocket {
  return (_options, done) => {
    if (publicOnly && (!mailPorts.has(port) || isForbiddenLiteral(host)))
      return done(describedForLibrary(new ForbiddenAddressError()), false)
    const socket = connect({ host, port, timeout: connectMs, ...(publicOnly && { lookup: lookUpPublic }) })
    onOpening(socket)
    const fail = (error: Error) => {
      socket.destroy()
      done(describedForLibrary(error), false)
    }
    const onTimeout = () => fail(Object.assign(new Error('Connection timeout'), { code: 'ETIMEDOUT' }))
    socket.once('error', fail).once('timeout', onTimeout)
    socket.once('connect', () => {
      socket.setTimeout(0).off('error', fail).off('timeout', onTimeout)
      done(null, { connection: socket })
    })
  }
}

/** With the members that the library's own errors of connecting have. */
function describedForLibrary(error: Error & { code?: string }): Error {
  if (error instanceof ForbiddenAddressError) return Object.assign(error, { code: forbidden })
  const { code } = error
  const timeout = code === 'ETIMEDOUT' ? { timeoutType: 'CONNECT_TIMEOUT' } : {}
  return Object.assign(error, { code: 'ECONNECTION', originalCode: code, ...timeout })
}

function envelopeAndContent(
  sender: MailSender,
  { fromName, to, subject, html, text, inline, attachments, messageId }: OutgoingMail,
) {
  const { name, address } = mailboxOf(sender)
  const headers = { 'Auto-Submitted': 'auto-generated' }
  const from = { name: name || fromName, address }
  return {
    from,
    to: { name: '', address: to },
    envelope: { from: address, to },
    subject,
    html,
    text,
    attachments: [
      ...inline.map((image) => ({ ...image, filename: image.cid, contentDisposition: 'inline' as const })),
      ...attachments.map((file) => ({ ...file, contentDisposition: 'attachment' as const })),
    ],
    messageId,
    headers,
  }
}

/** `<SENDER>_FROM_ADDRESS` may be an address or `Name <address>`. */
export function mailboxOf({ from }: MailSender): { readonly name: string; readonly address: string } {
  const [, name = '', address = from] = /^([^<]*)<([^<>]*)>\s*$/.exec(from) ?? []
  return { name: name.trim().replace(/^"(.*)"$/, '$1'), address: address.trim() }
}
