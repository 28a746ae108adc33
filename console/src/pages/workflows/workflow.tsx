import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Play, Plus, Redo2, Settings2, Undo2 } from 'lucide-react'
import { type KeyboardEvent, useEffect, useReducer, useState } from 'react'
import { DaybookError } from '../../../../clients/client.ts'
import { queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, IconButton } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { Menu } from '../../ui/menu.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { patchRow, readVersion } from '../data/writes.ts'
import { Canvas, type GraphProps, spoken } from './canvas.tsx'
import { ExecutionBar, History, Run } from './executions.tsx'
import {
  type Action,
  brokenIn,
  type Editing,
  handleOf,
  isDirty,
  nameOf,
  opened,
  readFlow,
  statesAfter,
  step,
} from './flow.ts'
import { Inspector } from './inspector.tsx'
import { kinds, titleOf } from './kinds.ts'
import { Settings } from './settings.tsx'
import {
  findingsQuery,
  triggerText,
  useLiveStates,
  useSettled,
  type Workflow,
  watchedQuery,
  workflowQuery,
} from './workflow.ts'
import styles from './workflows.module.css'

/** A workflow as a graph that is edited, watched while it runs, and looked at as it has run. */
export function WorkflowPage() {
  const { id } = useParams({ from: '/shell/workflows/$id' })
  const { data, error, refetch } = useQuery(workflowQuery(id))
  if (data !== undefined) return <Editor key={id} workflow={data.workflow} etag={data.etag} />
  return (
    <Page title="Workflow" crumbs={<Link to="/workflows">Workflows</Link>}>
      {error === null ? <Loading /> : <Problem error={error} onRetry={() => void refetch()} />}
    </Page>
  )
}

type EditorProps = { readonly workflow: Workflow; readonly etag: string | undefined }

function Editor({ workflow, etag }: EditorProps) {
  const me = useMe()
  const mayEdit =
    me.isAdmin || me.permissions.some(({ collection, action }) => collection === 'svc_Workflow' && action === 'update')
  const [state, dispatch] = useReducer(step, workflow.flow_data, (stored) => opened(readFlow(stored)))
  const [asked, setAsked] = useState<'run' | 'settings'>()
  const saving = useSaving({ workflow, etag, state, dispatch })
  const search = useSearch({ from: '/shell/workflows/$id' })
  const leaveQuestion = useLeaveQuestion(isDirty(state), 'The graph has changes that are not saved. They are lost.')
  const { data: findings = [], error: unchecked } = useQuery({
    ...findingsQuery(useSettled(state.flow)),
    placeholderData: keepPreviousData,
  })
  const watched = useWatched(workflow.id, search.execution)
  const onKeyDown = (event: KeyboardEvent) => {
    const isField = (event.target as HTMLElement).matches('input, textarea, select')
    if (!(event.ctrlKey || event.metaKey) || isField || !mayEdit) return
    const key = event.key.toLowerCase()
    if (key !== 'z' && key !== 'y') return
    event.preventDefault()
    dispatch({ do: key === 'y' || event.shiftKey ? 'redo' : 'undo' })
  }
  const broken = brokenIn(state)
  const graph: GraphProps = { state, dispatch, mayEdit, findings, states: watched.states }
  const selected = state.flow.nodes.find(({ id }) => id === state.selected)
  return (
    <Page
      title={workflow.name}
      crumbs={<Link to="/workflows">Workflows</Link>}
      description={
        <>
          <Badge tone={workflow.status === 'active' ? 'good' : 'plain'}>{workflow.status}</Badge>{' '}
          {triggerText(workflow)}, version {workflow.version}
        </>
      }
      actions={
        <>
          <Button size="s" onClick={() => setAsked('run')}>
            <Play aria-hidden="true" /> Run…
          </Button>
          {mayEdit && (
            <>
              <Button size="s" onClick={() => setAsked('settings')}>
                <Settings2 aria-hidden="true" /> Settings…
              </Button>
              <Button
                kind="primary"
                size="s"
                isBusy={saving.isBusy}
                disabled={!isDirty(state) || broken.length > 0}
                onClick={() => void saving.save(etag)}
              >
                Save
              </Button>
            </>
          )}
        </>
      }
    >
      {/* biome-ignore lint/a11y/noStaticElementInteractions: undo and redo work wherever the focus is among these */}
      <div className={styles.editor} onKeyDown={onKeyDown}>
        {saving.error !== undefined && <Problem error={saving.error} />}
        {unchecked !== null && <Problem error={unchecked} />}
        <Broken {...graph} />
        <Tools {...graph} />
        <General findings={findings} />
        {watched.error !== null && <Problem error={watched.error} />}
        {watched.data !== undefined && (
          <ExecutionBar
            workflow={workflow}
            execution={watched.data.execution}
            steps={watched.data.steps}
            upTo={watched.upTo}
            onUpTo={watched.setUpTo}
          />
        )}
        <div className={styles.parts} data-two={selected !== undefined}>
          {search.nodes === 'list' ? <NodeList {...graph} /> : <Canvas {...graph} />}
          {selected !== undefined && (
            <Inspector
              {...graph}
              workflow={workflow.id}
              node={selected}
              execution={watched.data?.execution}
              steps={watched.steps}
            />
          )}
        </div>
        <History workflow={workflow.id} shown={search.execution} />
      </div>
      {asked === 'run' && <Run workflow={workflow} isDirty={isDirty(state)} onClose={() => setAsked(undefined)} />}
      {asked === 'settings' && (
        <Settings workflow={workflow} etag={etag} onClose={() => setAsked(undefined)} onSaved={saving.refresh} />
      )}
      {leaveQuestion}
      {saving.conflict !== undefined && <ConflictDialog {...saving} conflict={saving.conflict} dispatch={dispatch} />}
    </Page>
  )
}

/** The execution of the address: its steps, as far as they are shown, and the state that each node has then. */
function useWatched(workflow: string, id: string | undefined) {
  const { data, error } = useQuery({ ...watchedQuery(workflow, id ?? ''), enabled: id !== undefined })
  const live = useLiveStates(workflow, id)
  const [chosen, setChosen] = useState<{ readonly id: string | undefined; readonly upTo: number }>()
  // A reader who opens an execution again sees all of it.
  useEffect(() => setChosen(undefined), [id])
  const isShown = id !== undefined && data !== undefined
  const all = isShown ? data.steps : []
  const upTo = chosen !== undefined && chosen.id === id ? chosen.upTo : all.length
  const steps = all.slice(0, upTo)
  const isOver = isShown && data.execution.status !== 'queued' && data.execution.status !== 'running'
  return {
    data: isShown ? data : undefined,
    error,
    steps,
    upTo,
    setUpTo: (next: number) => setChosen({ id, upTo: next }),
    states: isOver ? statesAfter(steps) : new Map([...statesAfter(steps), ...live]),
  }
}

type SavingProps = EditorProps & { readonly state: Editing; readonly dispatch: (action: Action) => void }
type Conflict = { readonly workflow: Workflow; readonly etag: string | undefined }

/** Saves the graph where nobody else has saved another one. */
function useSaving({ workflow, state, dispatch }: SavingProps) {
  const { isAdmin } = useMe()
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const [conflict, setConflict] = useState<Conflict>()
  const key = workflowQuery(workflow.id).queryKey
  const read = async (): Promise<Conflict> => {
    const { row, etag } = await readVersion('svc_Workflow', workflow.id)
    return { workflow: row as unknown as Workflow, etag }
  }
  const save = async (etag: string | undefined, version = workflow.version) => {
    setBusy(true)
    setError(undefined)
    const { flow } = state
    try {
      await patchRow('svc_Workflow', workflow.id, { flow_data: flow }, etag)
      const now = await read()
      setConflict(undefined)
      // The platform may have struck flags that only administrators may save.
      if (isAdmin) dispatch({ do: 'saved', flow })
      else dispatch({ do: 'load', flow: readFlow(now.workflow.flow_data) })
      if (now.workflow.version > version + 1) setConflict(now)
      queryClient.setQueryData(key, now)
    } catch (failure) {
      if (failure instanceof DaybookError && failure.status === 412) setConflict(await read())
      else setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const refresh = async () => queryClient.setQueryData(key, await read())
  const take = ({ workflow: theirs, etag }: Conflict) => {
    dispatch({ do: 'load', flow: readFlow(theirs.flow_data) })
    queryClient.setQueryData(key, { workflow: theirs, etag })
    setConflict(undefined)
  }
  return { isBusy, error, conflict, save, refresh, take, leave: () => setConflict(undefined) }
}

type ConflictProps = Omit<ReturnType<typeof useSaving>, 'conflict'> & {
  readonly conflict: Conflict
  readonly dispatch: (action: Action) => void
}

function ConflictDialog({ conflict, isBusy, save, take, leave }: ConflictProps) {
  const { nodes } = readFlow(conflict.workflow.flow_data)
  return (
    <Dialog
      isOpen
      onClose={leave}
      title="Somebody else has saved this workflow meanwhile"
      description={`Theirs is version ${conflict.workflow.version}.`}
      footer={
        <>
          <Button onClick={leave}>Go on editing</Button>
          <Button onClick={() => take(conflict)}>Take theirs</Button>
          <Button kind="danger" isBusy={isBusy} onClick={() => void save(conflict.etag, conflict.workflow.version)}>
            Save mine over it
          </Button>
        </>
      }
    >
      <p>It has these nodes:</p>
      <ul className={styles.theirs}>
        {nodes.map((node) => (
          <li key={node.id}>
            {nameOf(node)} <small>{titleOf(node.type)}</small>
          </li>
        ))}
      </ul>
    </Dialog>
  )
}

/** Adding, undoing, and the two ways to look at it. */
function Tools({ state, dispatch, mayEdit }: GraphProps) {
  const navigate = useNavigate({ from: '/workflows/$id' })
  const { nodes } = useSearch({ from: '/shell/workflows/$id' })
  const hasTrigger = state.flow.nodes.some(({ type }) => type === 'trigger')
  const entries = Object.entries(kinds)
    .filter(([type]) => type !== 'trigger' || !hasTrigger)
    .map(([type, { title, about }]) => ({
      label: (
        <>
          {title} <small>{about}</small>
        </>
      ),
      onSelect: () => dispatch({ do: 'add', type }),
    }))
  const show = (next: 'list' | undefined) => void navigate({ search: (before) => ({ ...before, nodes: next }) })
  return (
    <div className={styles.tools}>
      {mayEdit && (
        <>
          <Menu
            trigger={
              <Button size="s">
                <Plus aria-hidden="true" /> Add a node
              </Button>
            }
            entries={entries}
          />
          <IconButton
            size="s"
            label="Undo the change"
            disabled={state.past.length === 0}
            onClick={() => dispatch({ do: 'undo' })}
          >
            <Undo2 aria-hidden="true" />
          </IconButton>
          <IconButton
            size="s"
            label="Redo the change"
            disabled={state.future.length === 0}
            onClick={() => dispatch({ do: 'redo' })}
          >
            <Redo2 aria-hidden="true" />
          </IconButton>
        </>
      )}
      <Button size="s" kind="ghost" aria-pressed={nodes !== 'list'} onClick={() => show(undefined)}>
        Canvas
      </Button>
      <Button size="s" kind="ghost" aria-pressed={nodes === 'list'} onClick={() => show('list')}>
        List
      </Button>
      {isDirty(state) && <Badge tone="warn">not saved</Badge>}
    </div>
  )
}

/** Why it cannot be saved: options with a text that is no value. */
function Broken({ state }: GraphProps) {
  const broken = brokenIn(state)
  if (broken.length === 0) return null
  const named = new Map(state.flow.nodes.map((node) => [node.id, nameOf(node)]))
  return (
    <Note kind="warning">
      {broken.map(({ node, name = 'data', error }) => (
        <div key={`${node} ${name}`}>
          To save, fix {name} of {named.get(node)}: {error}
        </div>
      ))}
    </Note>
  )
}

/** The faults of the whole. */
function General({ findings }: Pick<GraphProps, 'findings'>) {
  const general = findings.filter(({ nodeId }) => nodeId === undefined)
  const ofNodes = findings.filter(({ nodeId, isWarning }) => nodeId !== undefined && !isWarning)
  if (general.length === 0 && ofNodes.length === 0) return null
  const nodes = new Set(ofNodes.map(({ nodeId }) => nodeId)).size
  return (
    <Note kind="warning">
      {general.map(({ message }) => (
        <div key={message}>{message}.</div>
      ))}
      {nodes > 0 && (
        <div>
          {nodes} {nodes === 1 ? 'node has' : 'nodes have'} something to fix before the workflow can be active.
        </div>
      )}
    </Note>
  )
}

/** The same nodes as a list, for those to whom a drawing says nothing. */
function NodeList(props: GraphProps) {
  const { state, dispatch } = props
  const { flow } = state
  const named = new Map(flow.nodes.map((node) => [node.id, nameOf(node)]))
  if (flow.nodes.length === 0) return <Empty title="There is no node yet">Begin with a trigger.</Empty>
  return (
    <ol className={styles.list} aria-label="Nodes">
      {flow.nodes.map((node) => (
        <li key={node.id}>
          <Button
            kind="ghost"
            aria-pressed={state.selected === node.id}
            aria-label={spoken(node, props)}
            onClick={() => dispatch({ do: 'select', id: node.id })}
          >
            {nameOf(node)}
          </Button>
          <span>
            {titleOf(node.type)}
            {flow.edges
              .filter(({ source }) => source === node.id)
              .map((edge) => {
                const handle = handleOf(flow, edge)
                return `; ${handle === 'done' ? '' : `${handle} `}leads to ${named.get(edge.target)}`
              })}
          </span>
          {props.states.has(node.id) && <Badge tone="info">{props.states.get(node.id)}</Badge>}
          {props.findings.some(({ nodeId }) => nodeId === node.id) && <Badge tone="warn">to fix</Badge>}
        </li>
      ))}
    </ol>
  )
}
