import { once } from 'node:events'
import { buffer } from 'node:stream/consumers'
import PostalMime, { type Email } from 'postal-mime'
import { SMTPServer } from 'smtp-server'

export type SmtpSink = {
  readonly port: number
  /** The mails accepted so far. */
  readonly mails: readonly Email[]
  close(): Promise<void>
}

/** A real SMTP server on 127.0.0.1 that accepts every mail and delivers none. Port 0 takes a free one. */
export async function openSmtpSink(port = 0, onMail: (mail: Email) => void = () => {}): Promise<SmtpSink> {
  const mails: Email[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    disableReverseLookup: true,
    closeTimeout: 50,
    onAuth: ({ username }, _session, done) => done(null, { user: username }),
    onData: (stream, _session, done) => {
      const keep = async () => {
        const mail = await PostalMime.parse(await buffer(stream))
        mails.push(mail)
        onMail(mail)
      }
      keep().then(() => done(null, 'OK: kept'), done)
    },
  })
  // A worker that is killed in the middle of a conversation is an error to the library.
  server.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') throw error
  })
  const listening = server.listen(port, '127.0.0.1')
  await once(listening, 'listening')
  const address = listening.address() as { port: number }
  return { port: address.port, mails, close: () => new Promise((resolve) => server.close(() => resolve())) }
}

/** `node scripts/demo/smtp-sink.ts 1025`: shows every mail in the terminal, for trying things out. */
if (import.meta.main) {
  const { port } = await openSmtpSink(Number(process.argv[2] ?? 1025), ({ to, subject, text }) => {
    process.stdout.write(`To: ${to?.map(({ address }) => address).join(', ')}\nSubject: ${subject}\n\n${text}\n\n`)
  })
  process.stdout.write(`An SMTP server on 127.0.0.1:${port} shows what it gets. Ctrl-C ends it.\n\n`)
}
