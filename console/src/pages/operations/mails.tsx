import { useState } from 'react'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Note } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import { Code, Facts, List, type Listing, moment, pageSize, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Mail = {
  readonly id: string
  readonly email: string
  readonly subject: string
  readonly templateName: string | null
  readonly sender: string | null
  readonly status: string
  readonly errorMessage: string | null
  readonly context: unknown
  readonly attempts: number
  readonly createdAt: string
  readonly sentAt: string | null
}

const tones = { sent: 'good', failed: 'bad', sending: 'info' } as const
const toneOf = (status: string) => tones[status as keyof typeof tones] ?? 'plain'

/** A server without a sender keeps mails for developers. */
const inbox = 'development inbox'

const mails: Listing<Mail> = {
  name: 'mails',
  title: 'Subject',
  isLive: true,
  read: async ({ state, find, page = 1 }) => {
    const { data, totalCount } = await client.request<{ data: readonly Mail[]; totalCount: number }>(
      '/items/svc_EmailLog',
      {
        query: {
          sort: '-createdAt',
          limit: pageSize,
          page,
          ...(state !== undefined && { filter: JSON.stringify({ status: state }) }),
          ...(find !== undefined && { search: find, searchFields: 'email,subject' }),
        },
      },
    )
    return { rows: data, total: totalCount }
  },
  readOne: async (id) => (await client.request<{ data: Mail }>(`/items/svc_EmailLog/${encodeURIComponent(id)}`)).data,
  keyOf: ({ id }) => id,
  titleOf: ({ subject }) => subject,
  columns: [
    { title: 'To', cell: ({ email }) => email },
    { title: 'State', cell: ({ status }) => <Badge tone={toneOf(status)}>{status}</Badge> },
    { title: 'Why it failed', cell: ({ errorMessage }) => errorMessage },
    { title: 'Made', cell: ({ createdAt }) => moment(createdAt) },
  ],
  filters: [{ name: 'state', label: 'State', options: ['queued', 'sending', 'sent', 'failed'] }],
  find: 'Address or subject',
  actions: [{ label: 'Send again', isFor: ({ status }) => status === 'failed', run: sendAgain }],
  detail: (mail) => (
    <>
      <Facts
        of={[
          ['To', mail.email],
          ['State', <Badge key="state" tone={toneOf(mail.status)}>{`${mail.status}`}</Badge>],
          ['Why it failed', mail.errorMessage],
          ['Template', mail.templateName],
          ['Sender', mail.sender],
          ['Attempts', mail.attempts],
          ['Made', moment(mail.createdAt)],
          ['Sent', moment(mail.sentAt)],
        ]}
      />
      {mail.sender === inbox && mail.status === 'sent' && <Kept id={mail.id} />}
      <Code>{mail.context}</Code>
    </>
  ),
  empty: { title: 'There is no mail' },
}

/** The server shows its development inbox to browsers on its own machine alone: the links in those mails open accounts. */
const isOnServer = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname)

function Kept({ id }: { readonly id: string }) {
  const path = `/_dev/mail/${encodeURIComponent(id)}`
  if (!isOnServer)
    return <Note>Nobody was sent it: the development inbox keeps it, and shows it at localhost on the server.</Note>
  return (
    <>
      <Note>
        Nobody was sent it: the development inbox keeps it.{' '}
        <a href={path} target="_blank" rel="noreferrer">
          With its text and files
        </a>
      </Note>
      <iframe className={styles.preview} title="The mail" src={`${path}/html`} sandbox="allow-popups" />
    </>
  )
}

/** A mail is sent by a job: that one is done again. */
async function sendAgain({ id }: Mail): Promise<string> {
  const { data } = await client.request<{ data: readonly { id: string; state: string }[] }>('/ops/jobs', {
    query: { queue: 'mail', about: id },
  })
  const over = data.find(({ state }) => ['dead', 'failed', 'cancelled', 'completed'].includes(state))
  if (over === undefined) throw new Error('Its job is not kept any more: have the mail made anew')
  await client.request(`/ops/jobs/${over.id}/redrive`, { method: 'POST', body: {} })
  return 'The mail is sent again'
}

/** The outbox, and a mail to try it. */
export function Mails(props: SectionProps) {
  const [isTesting, setTesting] = useState(false)
  return (
    <>
      <List
        {...props}
        listing={mails}
        tools={
          <Button size="s" onClick={() => setTesting(true)}>
            Send a test…
          </Button>
        }
      />
      {isTesting && <TestMail onClose={() => setTesting(false)} />}
    </>
  )
}

function TestMail({ onClose }: { readonly onClose: () => void }) {
  const [to, setTo] = useState('')
  const send = async () => {
    try {
      const { message } = await client.request<{ message: string }>('/settings/test-email', {
        method: 'POST',
        body: { to },
      })
      notify(message)
    } finally {
      void refreshLists()
    }
  }
  return (
    <FormDialog title="Send a test" action="Send" isDisabled={to === ''} onClose={onClose} onConfirm={send}>
      <TextField label="To" type="email" value={to} onChange={({ target }) => setTo(target.value)} />
    </FormDialog>
  )
}
