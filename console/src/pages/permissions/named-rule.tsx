import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { type Collection, useCatalog } from '../../app/catalog.ts'
import { queryClient } from '../../app/client.ts'
import { Button, looks } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { FormDrawer } from '../../ui/leaving.tsx'
import { bar } from '../../ui/room.ts'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { contentOf, nothing, type RuleContent, uncounted } from './content.ts'
import { Changes } from './impact.tsx'
import styles from './permissions.module.css'
import { RuleForm } from './rule-form.tsx'
import {
  impactOfRule,
  type NamedDraft,
  type NamedRule,
  type Permission,
  permissionsQuery,
  refreshRules,
  rolesQuery,
  storeNamed,
  usesOf,
} from './rules.ts'

type NamedRuleProps = {
  /** Undefined for a new one. */
  readonly rule: NamedRule | undefined
  /** The initial value of a new one. */
  readonly like: NamedRule | undefined
  readonly uses: readonly Permission[]
  readonly onClose: () => void
}

/** A named rule, who follows it, and its change. */
export function NamedRuleEditor({ rule, like, uses, onClose }: NamedRuleProps) {
  const [isChanged, setChanged] = useState(false)
  return (
    <FormDrawer
      isChanged={isChanged}
      size="l"
      onClose={onClose}
      title={rule?.name ?? 'New rule'}
      description={uses.length === 0 ? 'No permission follows it.' : `${count(uses)} it.`}
    >
      <div className={styles.form}>
        {uses.length > 0 && (
          <details>
            <summary>Who follows it</summary>
            <Uses uses={uses} />
          </details>
        )}
        {rule?.system === true ? (
          <BuiltIn rule={rule} />
        ) : (
          <Form rule={rule} like={like} uses={uses} onChanged={setChanged} onClose={onClose} />
        )}
      </div>
    </FormDrawer>
  )
}

const count = ({ length }: readonly Permission[]): string =>
  length === 1 ? '1 permission follows' : `${length.toLocaleString()} permissions follow`

/** Permissions, each with the way to it. */
export function Uses({ uses }: { readonly uses: readonly Permission[] }) {
  const { data: roles } = useSuspenseQuery(rolesQuery)
  return (
    <ul>
      {uses.map(({ id, role_Id: role, collection, action }) => (
        <li key={id}>
          <Link to="/permissions" search={{ role, collection }}>
            {roles.find((one) => one.id === role)?.name ?? role} may {action} {collection}
          </Link>
        </li>
      ))}
    </ul>
  )
}

function BuiltIn({ rule }: { readonly rule: NamedRule }) {
  return (
    <>
      <Note>It comes with every installation, and nobody changes it. Copy it to make one like it.</Note>
      <pre className={styles.stored}>{JSON.stringify(contentOf(rule), null, 2)}</pre>
      <div className={styles.save} {...bar}>
        <Link to="/permissions/rules" search={{ open: 'new', like: rule.id }} {...looks()}>
          Copy
        </Link>
      </div>
    </>
  )
}

type FormProps = NamedRuleProps & { readonly onChanged: (isChanged: boolean) => void }

function Form({ rule, like, uses, onChanged, onClose }: FormProps) {
  const catalog = useCatalog()
  const collections = inOrder(catalog, uses)
  const [shown, setShown] = useState(collections[0]!.name)
  const [name, setName] = useState(rule?.name ?? (like === undefined ? '' : `${like.name} (copy)`))
  const [description, setDescription] = useState(rule?.description ?? '')
  const [initial] = useState<RuleContent>(() => contentOf(rule ?? like ?? nothing))
  const [content, setContent] = useState(initial)
  const [isAsking, setAsking] = useState(false)
  const now = JSON.stringify([name, description, content])
  const [start] = useState(now)
  useEffect(() => onChanged(now !== start), [onChanged, now, start])
  const isWhole = name.trim() !== '' && Object.values(content).every((member) => member !== undefined)
  return (
    <>
      <TextField label="Name" autoComplete="off" value={name} onChange={({ target }) => setName(target.value)} />
      <TextField
        label="What it is for"
        autoComplete="off"
        value={description}
        onChange={({ target }) => setDescription(target.value)}
      />
      <Field
        label="With the names of"
        hint={
          uses.length > 0
            ? 'Only for the choices below. The rule must make sense in every collection where it is followed.'
            : 'Only for the choices below: the rule itself belongs to no collection.'
        }
      >
        {(attributes) => (
          <Select
            {...attributes}
            value={shown}
            onChange={({ target }) => setShown(target.value)}
            options={collections.map(({ name: value, label }) => ({
              value,
              label: label === value ? value : `${label} (${value})`,
            }))}
          />
        )}
      </Field>
      <RuleForm
        collection={catalog.get(shown)!}
        use="any"
        initial={initial}
        onChange={(members) => setContent((last) => ({ ...last, ...members }))}
      />
      <div className={styles.save} {...bar}>
        <Button kind="primary" disabled={!isWhole} onClick={() => setAsking(true)}>
          Save…
        </Button>
      </div>
      {isAsking && (
        <Ask
          id={rule?.id}
          uncounted={rule === undefined ? [] : uncounted(initial, content)}
          draft={{ ...content, name: name.trim(), description: description.trim() === '' ? null : description.trim() }}
          onClose={() => setAsking(false)}
          onSaved={onClose}
        />
      )}
    </>
  )
}

/** The collections where the rule is followed first, then the project's own, then the system's. */
function inOrder(catalog: ReadonlyMap<string, Collection>, uses: readonly Permission[]): readonly Collection[] {
  const rank = ({ name, isSystem }: Collection) =>
    uses.some(({ collection }) => collection === name) ? 0 : isSystem ? 2 : 1
  return [...catalog.values()].sort((a, b) => rank(a) - rank(b) || a.label.localeCompare(b.label))
}

type AskProps = {
  readonly id: string | undefined
  readonly draft: NamedDraft
  /** The changes beside rows and fields, in words. */
  readonly uncounted: readonly string[]
  readonly onClose: () => void
  readonly onSaved: () => void
}

/** Shows what the rule would change for everybody who follows it, before it does. */
function Ask({ id, draft, uncounted: further, onClose, onSaved }: AskProps) {
  const catalog = useCatalog()
  const { data: roles } = useSuspenseQuery(rolesQuery)
  const administrator = roles.find(({ name }) => name === 'administrator')?.id
  const { data, error } = useQuery({
    queryKey: ['permissions', 'impact', 'named', id, draft],
    queryFn: async () => {
      if (id === undefined) return { impacts: [], waiting: [] }
      // The users who follow it now, not when the page was opened.
      const uses = usesOf(await queryClient.fetchQuery({ ...permissionsQuery, staleTime: 0 }), id)
      const counts = ({ collection, role_Id: role }: Permission) => catalog.has(collection) && role !== administrator
      const { name: _name, description: _description, ...content } = draft
      return {
        impacts: await impactOfRule(id, content, uses.filter(counts)),
        waiting: uses.filter((one) => !counts(one)),
      }
    },
    staleTime: 0,
    gcTime: 0,
  })
  const isLosing = data?.impacts.some(({ users }) => users.losing > 0) ?? false
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title="What this changes"
      action={id === undefined ? 'Create' : 'Save'}
      isDangerous={isLosing}
      isDisabled={data === undefined}
      onConfirm={async () => {
        await storeNamed(id, draft)
        await refreshRules()
        notify(`Saved the rule ${draft.name}`)
        onSaved()
      }}
    >
      {error !== null && <Problem error={error} />}
      {error === null && data === undefined && <Loading lines={3} label="Counting rows" />}
      {data !== undefined && data.impacts.length + data.waiting.length === 0 && (
        <p>No permission follows it, so nobody gains or loses anything.</p>
      )}
      {data !== undefined && (
        <ul className={styles.uses}>
          {data.impacts.map((impact) => (
            <li key={`${impact.role.id} ${impact.collection} ${impact.action}`}>
              <strong>
                {impact.role.name} may {impact.action} {impact.collection}
              </strong>
              <Changes impact={impact} uncounted={further} />
            </li>
          ))}
          {data.waiting.map(({ id: permission, collection, action }) => (
            <li key={permission}>
              <strong>
                {action} {collection}
              </strong>
              <p>This permission grants nothing now.</p>
            </li>
          ))}
        </ul>
      )}
    </ConfirmDialog>
  )
}
