import { Tabs } from '@base-ui/react/tabs'
import { useSuspenseQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { type Catalog, type Collection, useCatalog, useCollection } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox } from '../../ui/field.tsx'
import { FormDrawer } from '../../ui/leaving.tsx'
import { bar } from '../../ui/room.ts'
import { Note } from '../../ui/states.tsx'
import { closed, contentOf, nothing, type RuleContent, together, uncounted } from './content.ts'
import { type Action, actions } from './fields.ts'
import { AskPermission } from './impact.tsx'
import { NamedChoice } from './named-choice.tsx'
import styles from './permissions.module.css'
import { RuleForm } from './rule-form.tsx'
import { type Draft, type NamedRule, namedIn, namedRulesQuery, type Permission, type Role } from './rules.ts'

type EditorProps = {
  readonly role: Role
  readonly collection: string
  readonly stored: readonly Permission[]
  readonly onClose: () => void
}

/** The rights of one role on one collection, action by action. Edits of one stay while another is shown. */
export function PermissionEditor({ role, collection, stored, onClose }: EditorProps) {
  const [action, setAction] = useState<Action>('read')
  const [edits, setEdits] = useState<Partial<Record<Action, Edit>>>({})
  const known = useCollection(collection)
  const before = stored.find((one) => one.action === action)
  const look = (next: Action) => {
    if (next === action) return
    setAction(next)
    // Edits that cannot be stored are not shown again.
    setEdits(({ [action]: edit, ...others }) =>
      edit === undefined ? others : { ...others, [action]: { ...edit, content: storable(edit.content, edit.begin) } },
    )
  }
  return (
    <FormDrawer
      isChanged={Object.keys(edits).length > 0}
      size="l"
      onClose={onClose}
      title={`${role.name} · ${collection}`}
      description={
        <Link to="/permissions/explain" search={{ role: role.name, collection, action }}>
          Explain what this comes to
        </Link>
      }
    >
      <Tabs.Root value={action} onValueChange={look}>
        <Tabs.List className={styles.tabs} aria-label="Action" activateOnFocus>
          {actions.map((one) => (
            <Tabs.Tab key={one} value={one} className={styles.tab}>
              {one}
              {edits[one] !== undefined && (
                <span className={styles.edited} title="Not saved">
                  <span className="visually-hidden"> not saved</span>
                </span>
              )}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={action} key={action}>
          {known === undefined ? (
            <Note>There is no collection {collection}. What is granted for it counts once there is one.</Note>
          ) : (
            <Rule
              role={role}
              collection={known}
              action={action}
              before={before}
              edit={edits[action] ?? startOf(before)}
              onEdit={(change) => setEdits((all) => ({ ...all, [action]: change(all[action] ?? startOf(before)) }))}
              onSaved={() => setEdits(({ [action]: _saved, ...others }) => others)}
            />
          )}
        </Tabs.Panel>
      </Tabs.Root>
    </FormDrawer>
  )
}

/** A permission as it is edited. */
type Edit = {
  readonly isGranted: boolean
  /** The named rules that it follows, by id; null for a rule of its own. */
  readonly chosen: readonly string[] | null
  /** The rule of its own; a member is undefined while it cannot be stored. */
  readonly content: RuleContent
  /** The value at the beginning. */
  readonly begin: RuleContent
  /** Another one when the rule begins anew. */
  readonly version: number
}

/** A rule of its own begins with all where there is none. */
function startOf(before: Permission | undefined): Edit {
  const named = before === undefined ? [] : namedIn(before)
  const content = before === undefined ? { ...nothing, fields: ['*'] } : contentOf(before)
  return {
    isGranted: before !== undefined,
    chosen: named.length === 0 ? null : named,
    content,
    begin: content,
    version: 0,
  }
}

type RuleProps = {
  readonly role: Role
  readonly collection: Collection
  readonly action: Action
  readonly before: Permission | undefined
  readonly edit: Edit
  readonly onEdit: (change: (edit: Edit) => Edit) => void
  readonly onSaved: () => void
}

function Rule({ role, collection, action, before, edit, onEdit, onSaved }: RuleProps) {
  const { data: all } = useSuspenseQuery(namedRulesQuery)
  const catalog = useCatalog()
  const [isAsking, setAsking] = useState(false)
  const change = (members: Partial<Edit>) => onEdit((last) => ({ ...last, ...members }))
  const given = (ids: readonly string[]) => givenBy(ids, { all, collection, action, catalog })
  const makeOwn = () => {
    // From what the named rules give: a rule of its own that says nothing would open everything.
    const ids = (edit.chosen ?? []).length > 0 ? edit.chosen : startOf(before).chosen
    const content = ids === null ? storable(edit.content, edit.begin) : given(ids)
    change({ chosen: null, content, begin: content, version: edit.version + 1 })
  }
  const says = ({ chosen, content }: Edit) => (chosen === null ? content : given(chosen))
  const draft = draftOf(edit)
  return (
    <div className={styles.form}>
      <Checkbox
        label={`May ${action} items`}
        checked={edit.isGranted}
        onChange={({ target }) => change({ isGranted: target.checked })}
      />
      {edit.isGranted && (
        <>
          <NamedChoice chosen={edit.chosen} rules={all} onChoose={(chosen) => change({ chosen })} onOwn={makeOwn} />
          {edit.chosen === null && (
            <RuleForm
              key={edit.version}
              collection={collection}
              use={action}
              initial={storable(edit.content, edit.begin)}
              onChange={(members) => onEdit((last) => ({ ...last, content: { ...last.content, ...members } }))}
            />
          )}
        </>
      )}
      <div className={styles.save} {...bar}>
        <Button kind="primary" disabled={draft === undefined} onClick={() => setAsking(true)}>
          Save…
        </Button>
      </div>
      {isAsking && draft !== undefined && (
        <AskPermission
          role={role}
          collection={collection.name}
          action={action}
          before={before}
          draft={draft}
          uncounted={before === undefined || draft === null ? [] : uncounted(says(startOf(before)), says(edit))}
          onClose={() => setAsking(false)}
          onSaved={onSaved}
        />
      )}
    </div>
  )
}

type Around = {
  readonly all: readonly NamedRule[]
  readonly collection: Collection
  readonly action: Action
  readonly catalog: Catalog
}

/** Named rules combined, in their order; nothing where all of them are gone. */
function givenBy(ids: readonly string[], { all, collection, action, catalog }: Around): RuleContent {
  const named = ids.flatMap((id) => all.find((rule) => rule.id === id) ?? [])
  return named.length === 0 ? closed(collection, action) : together(named, action, collection.name, catalog)
}

const isWhole = (content: RuleContent): boolean => Object.values(content).every((member) => member !== undefined)

/** With what is stored in place of what cannot be. */
const storable = (content: RuleContent, stored: RuleContent): RuleContent => ({
  ...stored,
  ...Object.fromEntries(Object.entries(content).filter(([, member]) => member !== undefined)),
})

/** The value to store, null for none; undefined while it cannot be stored. */
function draftOf({ isGranted, chosen, content }: Edit): Draft | null | undefined {
  if (!isGranted) return null
  if (chosen !== null) return chosen.length === 0 ? undefined : { ...nothing, acl_Ids: chosen }
  return isWhole(content) ? { ...content, acl_Ids: null } : undefined
}
