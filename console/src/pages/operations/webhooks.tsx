import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox, Field, TextArea, TextField } from '../../ui/field.tsx'
import { FormDialog, SecretDialog } from '../../ui/leaving.tsx'
import { Note } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { type Action, Code, Facts, List, type Listing, moment, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Webhook = {
  readonly id: string
  readonly name: string
  readonly url: string
  readonly collections: readonly string[]
  readonly actions: readonly string[] | null
  readonly filter: unknown
  readonly fields: readonly string[] | null
  readonly status: string
  readonly reason: string | null
  readonly createdAt: string
}

type Delivery = {
  readonly id: string
  readonly collection: string | null
  readonly action: string
  readonly itemId: string | null
  readonly status: string
  readonly attempts: number
  readonly nextAt: string | null
  readonly responseStatus: number | null
  readonly response: string | null
  readonly error: string | null
  readonly durationMs: number | null
  readonly createdAt: string
}

const tones = { active: 'good', delivered: 'good', dead: 'bad', stopped: 'bad', pending: 'info' } as const
const Status = ({ of }: { readonly of: string }) => (
  <Badge tone={tones[of as keyof typeof tones] ?? 'plain'}>{of}</Badge>
)
const pathOf = (id: string) => `/webhooks/${encodeURIComponent(id)}`

/** A secret that is shown this once. */
type Fresh = { readonly name: string; readonly secret: string }

type Handlers = {
  readonly set: SectionProps['set']
  readonly onSecret: (fresh: Fresh) => void
  readonly onChange: (webhook: Webhook) => void
}

const webhooks = ({ set, onSecret, onChange }: Handlers): Listing<Webhook> => ({
  name: 'webhooks',
  title: 'Name',
  isLive: true,
  read: async () => ({ rows: (await client.request<{ data: readonly Webhook[] }>('/webhooks')).data }),
  keyOf: ({ id }) => id,
  titleOf: ({ name }) => name,
  columns: [
    { title: 'Address', cell: ({ url }) => url },
    { title: 'Collections', cell: ({ collections }) => collections.join(', ') },
    { title: 'State', cell: ({ status }) => <Status of={status} /> },
    { title: 'Why', cell: ({ reason }) => reason },
  ],
  actions: [
    {
      label: 'Deliveries',
      run: async ({ id }) => {
        set({ of: id, open: undefined })
        return undefined
      },
    },
    {
      label: 'Change…',
      run: async (webhook) => {
        set({ open: undefined })
        onChange(webhook)
        return undefined
      },
    },
    {
      label: 'Test',
      run: async ({ id }) => {
        await client.request(`${pathOf(id)}/test`, { method: 'POST', body: {} })
        return 'A test is on its way: see the deliveries'
      },
    },
    { label: 'Pause', isFor: ({ status }) => status === 'active', run: become('paused', 'Paused') },
    { label: 'Resume', isFor: ({ status }) => status !== 'active', run: become('active', 'Resumed') },
    {
      label: 'New secret',
      question: () => 'For a day deliveries are signed with the old one as well.',
      run: async ({ id, name }) => {
        const { data } = await client.request<{ data: { secret: string } }>(`${pathOf(id)}/rotate`, {
          method: 'POST',
          body: {},
        })
        onSecret({ name, secret: data.secret })
        return undefined
      },
    },
    {
      label: 'Delete',
      isDangerous: true,
      question: ({ name }) => `${name} is told nothing any more. Its deliveries go with it.`,
      run: async ({ id }) => {
        await client.request(pathOf(id), { method: 'DELETE' })
        set({ open: undefined })
        return 'Deleted'
      },
    },
  ],
  detail: (webhook) => (
    <Facts
      of={[
        ['Address', webhook.url],
        ['State', <Status key="status" of={webhook.status} />],
        ['Why', webhook.reason],
        ['Collections', webhook.collections.join(', ')],
        ['Actions', webhook.actions?.join(', ') ?? 'all'],
        ['Fields', webhook.fields?.join(', ') ?? 'all that its role may read'],
        ['Filter', webhook.filter === null ? null : <Code key="filter">{webhook.filter}</Code>],
        ['Made', moment(webhook.createdAt)],
      ]}
    />
  ),
  empty: { title: 'There is no webhook', text: 'One tells an address of each change of some collections.' },
})

const become =
  (status: 'active' | 'paused', said: string): Action<Webhook>['run'] =>
  async ({ id }) => {
    await client.request(pathOf(id), { method: 'PATCH', body: { status } })
    return said
  }

const deliveries = (id: string): Listing<Delivery> => ({
  name: `deliveries of ${id}`,
  title: 'What',
  isLive: true,
  read: async ({ state }) => {
    const query = { limit: 100, status: state }
    return { rows: (await client.request<{ data: readonly Delivery[] }>(`${pathOf(id)}/deliveries`, { query })).data }
  },
  readOne: async (delivery) =>
    (await client.request<{ data: Delivery }>(`${pathOf(id)}/deliveries/${encodeURIComponent(delivery)}`)).data,
  keyOf: ({ id: key }) => key,
  titleOf: ({ action, collection, itemId }) => [action, collection, itemId].filter((part) => part !== null).join(' '),
  columns: [
    { title: 'State', cell: ({ status }) => <Status of={status} /> },
    { title: 'Answer', cell: ({ responseStatus, error }) => error ?? responseStatus },
    { title: 'Attempts', isNumber: true, cell: ({ attempts }) => attempts },
    { title: 'Made', cell: ({ createdAt }) => moment(createdAt) },
  ],
  filters: [{ name: 'state', label: 'State', options: ['pending', 'delivered', 'withheld', 'dead'] }],
  actions: [
    {
      label: 'Deliver again',
      run: async ({ id: delivery }) => {
        const path = `${pathOf(id)}/deliveries/${encodeURIComponent(delivery)}/redeliver`
        await client.request(path, { method: 'POST', body: {} })
        return 'It is delivered once more'
      },
    },
  ],
  detail: (delivery) => (
    <>
      <Facts
        of={[
          ['State', <Status key="status" of={delivery.status} />],
          ['Attempts', delivery.attempts],
          ['Next attempt', delivery.status === 'pending' ? moment(delivery.nextAt) : null],
          ['Answer', delivery.responseStatus],
          ['Took', delivery.durationMs === null ? null : `${delivery.durationMs} ms`],
          ['Why it failed', delivery.error],
        ]}
      />
      {delivery.response !== null && delivery.response !== '' && <Code>{delivery.response}</Code>}
    </>
  ),
  empty: {
    title: 'Nothing was delivered',
    text: 'The worker webhooks delivers; those that are done are kept for a week.',
  },
})

/** Webhooks, and the deliveries of one. */
export function Webhooks(props: SectionProps) {
  const { search, set } = props
  const [form, setForm] = useState<{ readonly of?: Webhook }>()
  const [fresh, setFresh] = useState<Fresh>()
  if (search.of !== undefined)
    return (
      <List
        {...props}
        listing={deliveries(search.of)}
        tools={
          <Button size="s" onClick={() => set({ of: undefined, state: undefined, open: undefined })}>
            All webhooks
          </Button>
        }
      />
    )
  return (
    <>
      <List
        {...props}
        listing={webhooks({ set, onSecret: setFresh, onChange: (of) => setForm({ of }) })}
        tools={
          <Button size="s" kind="primary" onClick={() => setForm({})}>
            New webhook…
          </Button>
        }
      />
      {form !== undefined && <WebhookForm {...form} onClose={() => setForm(undefined)} onMade={setFresh} />}
      {fresh !== undefined && (
        <SecretDialog title={`The secret of ${fresh.name}`} onClose={() => setFresh(undefined)}>
          <Note kind="warning">It is shown only now. What is delivered is signed with it.</Note>
          <code className={styles.secret}>{fresh.secret}</code>
        </SecretDialog>
      )}
    </>
  )
}

const allActions = ['create', 'update', 'delete', 'remove'] as const

type FormProps = {
  /** The webhook to change; without one, the form makes a new one. */
  readonly of?: Webhook
  readonly onClose: () => void
  readonly onMade: (fresh: Fresh) => void
}

/** The events of a webhook, and its address. */
function WebhookForm({ of, onClose, onMade }: FormProps) {
  const [draft, setDraft] = useState({
    name: of?.name ?? '',
    url: of?.url ?? '',
    collections: of?.collections ?? [],
    actions: of?.actions ?? allActions,
    fields: of?.fields?.join(', ') ?? '',
    filter: of?.filter == null ? '' : JSON.stringify(of.filter, null, 2),
  })
  const { name, url, collections, actions, fields, filter } = draft
  const own = [...useCatalog().values()].filter(({ isSystem, name: one }) => !isSystem || collections.includes(one))
  const save = async () => {
    const body = { name, url, collections, ...narrowing(draft) }
    if (of === undefined) {
      const { data } = await client.request<{ data: { secret: string } }>('/webhooks', { method: 'POST', body })
      onMade({ name, secret: data.secret })
    } else await client.request(pathOf(of.id), { method: 'PATCH', body })
    await refreshLists()
  }
  return (
    <FormDialog
      title={of === undefined ? 'New webhook' : 'Change the webhook'}
      description="It sees what the role of its maker may see."
      action={of === undefined ? 'Make it' : 'Save'}
      isDisabled={name === '' || url === '' || collections.length === 0 || actions.length === 0}
      onClose={onClose}
      onConfirm={save}
    >
      <div className={styles.detail}>
        <TextField label="Name" value={name} onChange={({ target }) => setDraft({ ...draft, name: target.value })} />
        <TextField
          label="Address"
          type="url"
          placeholder="https://"
          value={url}
          onChange={({ target }) => setDraft({ ...draft, url: target.value })}
        />
        <Several
          title="Collections"
          options={own.map((one) => ({ value: one.name, label: one.label }))}
          chosen={collections}
          onChange={(chosen) => setDraft({ ...draft, collections: chosen })}
        />
        <Several
          title="Actions"
          options={allActions.map((value) => ({ value, label: value }))}
          chosen={actions}
          onChange={(chosen) => setDraft({ ...draft, actions: chosen })}
        />
        <TextField
          label="Fields"
          hint="Names with commas between; all that the role may read unless given"
          value={fields}
          onChange={({ target }) => setDraft({ ...draft, fields: target.value })}
        />
        <Field label="Filter" hint="JSON of the query language; all rows unless given">
          {(attributes) => (
            <TextArea
              {...attributes}
              isCode
              rows={3}
              value={filter}
              onChange={({ target }) => setDraft({ ...draft, filter: target.value })}
            />
          )}
        </Field>
      </div>
    </FormDialog>
  )
}

type Narrowing = { readonly actions: readonly string[]; readonly fields: string; readonly filter: string }

/** Null stands for all. */
function narrowing({ actions, fields, filter }: Narrowing) {
  const names = fields.split(',').flatMap((name) => name.trim() || [])
  return {
    actions: actions.length === allActions.length ? null : actions,
    fields: names.length === 0 ? null : names,
    filter: filter.trim() === '' ? null : parsed(filter),
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error('The filter is no JSON')
  }
}

type SeveralProps = {
  readonly title: string
  readonly options: readonly { readonly value: string; readonly label: string }[]
  readonly chosen: readonly string[]
  readonly onChange: (chosen: readonly string[]) => void
}

const Several = ({ title, options, chosen, onChange }: SeveralProps) => (
  <fieldset className={styles.several}>
    <legend>{title}</legend>
    {options.map(({ value, label }) => (
      <Checkbox
        key={value}
        label={label}
        checked={chosen.includes(value)}
        onChange={({ target }) =>
          onChange(target.checked ? [...chosen, value] : chosen.filter((other) => other !== value))
        }
      />
    ))}
  </fieldset>
)
