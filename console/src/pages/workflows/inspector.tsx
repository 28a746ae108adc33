import { Trash2 } from 'lucide-react'
import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Checkbox, Field, type FieldAttributes, Input, Select, TextArea, TextField } from '../../ui/field.tsx'
import { Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { sameValue } from '../data/values.ts'
import type { GraphProps } from './canvas.tsx'
import { brokenIn, type FlowNode, handleOf, handlesOf, isDirty, nameOf } from './flow.ts'
import { kinds, type Option, readValue, shownValue, titleOf } from './kinds.ts'
import { type Execution, type Step, testNode } from './workflow.ts'
import styles from './workflows.module.css'

type InspectorProps = GraphProps & {
  readonly workflow: string
  readonly node: FlowNode
  /** Of the execution that is shown. */
  readonly execution: Execution | undefined
  readonly steps: readonly Step[]
}

/** All about one node: what it did, what is wrong with it, what it is set to, and where it leads. */
export function Inspector(props: InspectorProps) {
  const { node, findings, dispatch, mayEdit, steps, execution } = props
  const own = findings.filter(({ nodeId }) => nodeId === node.id)
  const done = steps.filter(({ nodeId }) => nodeId === node.id)
  return (
    <section className={styles.inspector} aria-label={`Node ${nameOf(node)}`}>
      <header className={styles.head}>
        <div>
          <h2>{nameOf(node)}</h2>
          <small>
            {titleOf(node.type)} · {kinds[node.type]?.about ?? 'Of an extension.'}
          </small>
        </div>
        {mayEdit && (
          <IconButton label="Delete this node" size="s" onClick={() => dispatch({ do: 'remove', id: node.id })}>
            <Trash2 aria-hidden="true" />
          </IconButton>
        )}
      </header>
      {own.length > 0 && (
        <ul className={styles.findings} aria-label="What to fix">
          {own.map(({ code, message, isWarning }) => (
            <li key={`${code} ${message}`} data-warning={isWarning}>
              {message}
            </li>
          ))}
        </ul>
      )}
      {execution !== undefined && <Done steps={done} />}
      <fieldset className={styles.options} disabled={!mayEdit}>
        <legend>Options</legend>
        <TextField
          label="Name"
          value={typeof node.data.label === 'string' ? node.data.label : ''}
          placeholder={node.id}
          hint={`Templates call it outputs['${node.id}'].`}
          onChange={({ target: { value } }) =>
            dispatch({ do: 'change', id: node.id, name: 'label', value: value === '' ? undefined : value })
          }
        />
        {(kinds[node.type]?.options ?? []).map((option) => (
          <OptionField key={`${node.id} ${option.name}`} {...props} option={option} />
        ))}
        <details>
          <summary>All of it as JSON</summary>
          <Whole key={node.id} {...props} />
        </details>
      </fieldset>
      <Edges {...props} />
      {mayEdit && <NodeTest key={node.id} {...props} />}
    </section>
  )
}

function Done({ steps }: { readonly steps: readonly Step[] }) {
  const shown = steps.slice(-20)
  return (
    <section className={styles.done} aria-label="What it did">
      <h3>In this execution</h3>
      {steps.length === 0 && <p>It has not run.</p>}
      {steps.length > shown.length && (
        <p>
          The last {shown.length} of {steps.length} times.
        </p>
      )}
      {shown.map(({ id, status, inputData, outputData, errorMessage, durationMs }, place) => (
        <details key={id} open={place === shown.length - 1}>
          <summary>
            <Badge tone={status === 'success' ? 'good' : status === 'failed' ? 'bad' : 'info'}>{status}</Badge>{' '}
            {durationMs !== null && `${durationMs} ms`}
          </summary>
          {errorMessage !== null && <p className={styles.error}>{errorMessage}</p>}
          <Json title="Input" value={inputData} />
          <Json title="Output" value={outputData} />
        </details>
      ))}
    </section>
  )
}

const longestJson = 20_000

export function Json({ title, value }: { readonly title: string; readonly value: unknown }) {
  const text = JSON.stringify(value, null, 2) ?? '—'
  return (
    <div>
      <small>{title}</small>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard */}
      <section className={styles.json} tabIndex={0} aria-label={title}>
        {text.length > longestJson ? `${text.slice(0, longestJson)}\n… ${text.length} characters` : text}
      </section>
    </div>
  )
}

/** A text that is typed, and the value that it stands for: it is shown while the value is this. */
type Typed = { readonly text: string; readonly value: unknown }

/** The text of an option or of all data of a node: as it is typed, or the stored value's. */
function useTyped({ state, dispatch, node }: InspectorProps, name: string | undefined, stored: unknown) {
  const [typed, setTyped] = useState<Typed>()
  const broken = brokenIn(state).find((one) => one.node === node.id && one.name === name)
  const isMine = typed !== undefined && sameValue(typed.value, stored)
  /** Reads the text; where it is no value, it is kept with the reason, whatever node is selected next. */
  const type = <Value,>(text: string, read: (text: string) => Value, take: (value: Value) => void) => {
    try {
      const value = read(text)
      setTyped({ text, value })
      take(value)
    } catch (failure) {
      dispatch({ do: 'type', broken: { node: node.id, name, text, error: (failure as Error).message } })
    }
  }
  return { text: broken?.text ?? (isMine ? typed.text : undefined), error: broken?.error, type }
}

function OptionField(props: InspectorProps & { readonly option: Option }) {
  const { node, dispatch, option } = props
  const { name, label, form, hint } = option
  const stored = node.data[name]
  const typed = useTyped(props, name, stored)
  const change = (value: unknown) => dispatch({ do: 'change', id: node.id, name, value })
  const type = (next: string) => typed.type(next, (one) => readValue(form, one), change)
  if (form === 'check')
    return (
      <Checkbox
        label={label}
        checked={stored === true}
        onChange={({ target }) => change(target.checked ? true : name === 'waitForCompletion' ? false : undefined)}
      />
    )
  const text = typed.text ?? shownValue(form, stored)
  return (
    <Field label={label} hint={hint} error={typed.error}>
      {(attributes) =>
        typeof form === 'object' ? (
          <Select
            {...attributes}
            value={text}
            options={[{ value: '', label: '—' }, ...new Set([...form, ...(text === '' ? [] : [text])])]}
            onChange={({ target }) => type(target.value)}
          />
        ) : form === 'collection' ? (
          <CollectionName attributes={attributes} value={text} onChange={type} />
        ) : (
          <TextArea
            {...attributes}
            isCode={form === 'json' || form === 'lines'}
            rows={form === 'json' || form === 'lines' ? Math.min(10, Math.max(3, text.split('\n').length)) : 1}
            value={text}
            onChange={({ target }) => type(target.value)}
          />
        )
      }
    </Field>
  )
}

type CollectionNameProps = {
  readonly attributes: FieldAttributes
  readonly value: string
  readonly onChange: (text: string) => void
}

/** The name of a collection, of those that there are, or a template of one. */
function CollectionName({ attributes, value, onChange }: CollectionNameProps) {
  const catalog = useCatalog()
  const names = `${attributes.id}-names`
  return (
    <>
      <Input
        {...attributes}
        list={names}
        autoComplete="off"
        value={value}
        onChange={({ target }) => onChange(target.value)}
      />
      <datalist id={names}>
        {[...catalog.values()]
          .filter(({ isJunction }) => !isJunction)
          .sort((a, b) => Number(a.isSystem) - Number(b.isSystem) || a.name.localeCompare(b.name))
          .map(({ name, label }) => (
            <option key={name} value={name} label={label === name ? undefined : label} />
          ))}
      </datalist>
    </>
  )
}

function Whole(props: InspectorProps) {
  const { node, dispatch } = props
  const typed = useTyped(props, undefined, node.data)
  const take = (data: FlowNode['data']) => dispatch({ do: 'replace', id: node.id, data })
  return (
    <Field label="Data" error={typed.error}>
      {(attributes) => (
        <TextArea
          {...attributes}
          isCode
          rows={10}
          value={typed.text ?? JSON.stringify(node.data, null, 2)}
          onChange={({ target }) => typed.type(target.value, readData, take)}
        />
      )}
    </Field>
  )
}

function readData(text: string): FlowNode['data'] {
  try {
    const data: unknown = JSON.parse(text)
    if (typeof data !== 'object' || data === null || Array.isArray(data)) throw new Error('an object is needed')
    return data as FlowNode['data']
  } catch (error) {
    throw new Error(`This is no JSON: ${(error as Error).message}`)
  }
}

function Edges({ state: { flow }, dispatch, node, mayEdit }: InspectorProps) {
  const [handle, setHandle] = useState<string>()
  const handles = handlesOf(node.type)
  const chosen = handle !== undefined && handles.includes(handle) ? handle : handles[0]!
  const named = (id: string) => {
    const found = flow.nodes.find((one) => one.id === id)
    return found === undefined ? id : nameOf(found)
  }
  const out = flow.edges.filter(({ source }) => source === node.id)
  const others = flow.nodes.filter(({ id, type }) => id !== node.id && type !== 'trigger')
  return (
    <section aria-label="Leads to">
      <h3>Leads to</h3>
      {out.length === 0 && <p>Nothing follows.</p>}
      <ul className={styles.edges}>
        {out.map((edge) => {
          const by = handleOf(flow, edge)
          return (
            <li key={edge.id}>
              <span>
                {by !== 'done' && <Badge>{by}</Badge>} {named(edge.target)}
                {edge.targetHandle !== undefined && <small> ({edge.targetHandle})</small>}
              </span>
              {mayEdit && (
                <IconButton
                  size="s"
                  label={`Remove the edge to ${named(edge.target)}`}
                  onClick={() => dispatch({ do: 'disconnect', edge: edge.id })}
                >
                  <Trash2 aria-hidden="true" />
                </IconButton>
              )}
            </li>
          )
        })}
      </ul>
      {mayEdit && others.length > 0 && (
        <div className={styles.connect}>
          {handles.length > 1 && (
            <Select
              size="s"
              aria-label="From"
              value={chosen}
              options={handles}
              onChange={({ target }) => setHandle(target.value)}
            />
          )}
          <Select
            size="s"
            aria-label="Connect to"
            value=""
            options={[
              { value: '', label: 'Connect to…' },
              ...others.map((other) => ({ value: other.id, label: nameOf(other) })),
            ]}
            onChange={({ target }) =>
              dispatch({ do: 'connect', source: node.id, handle: chosen, target: target.value })
            }
          />
        </div>
      )}
    </section>
  )
}

/** Runs one node as it is saved, with its effects, in a context that is given. */
function NodeTest({ workflow, node, state, execution, steps }: InspectorProps) {
  const before = {
    trigger: execution?.trigger_data ?? {},
    ...(steps.length > 0 && {
      outputs: Object.fromEntries(steps.map(({ nodeId, outputData }) => [nodeId, outputData])),
    }),
  }
  const [input, setInput] = useState<string>()
  const [outcome, setOutcome] = useState<{ readonly result?: unknown; readonly error?: unknown }>()
  const [isBusy, setBusy] = useState(false)
  const run = async () => {
    setBusy(true)
    setOutcome(undefined)
    try {
      setOutcome({ result: await testNode(workflow, node.id, input === undefined ? before : JSON.parse(input)) })
    } catch (error) {
      setOutcome({ error })
    } finally {
      setBusy(false)
    }
  }
  return (
    <details className={styles.test}>
      <summary>Test this node</summary>
      <Field label="Context" hint="What came before it: trigger, outputs, variables, loop.">
        {(attributes) => (
          <TextArea
            {...attributes}
            isCode
            rows={5}
            value={input ?? JSON.stringify(before, null, 2)}
            onChange={({ target }) => setInput(target.value)}
          />
        )}
      </Field>
      {isDirty(state) && <Note>What is saved is tested: save first.</Note>}
      <Button size="s" isBusy={isBusy} disabled={isDirty(state)} onClick={() => void run()}>
        Run it, with its effects
      </Button>
      {outcome?.error !== undefined && <Problem error={outcome.error} />}
      {outcome !== undefined && outcome.error === undefined && <Json title="Result" value={outcome.result} />}
    </details>
  )
}
