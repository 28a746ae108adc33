import { useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { useState } from 'react'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { ConfirmDialog, Dialog } from '../../ui/dialog.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import { inWords } from './content.ts'
import { NamedRuleEditor, Uses } from './named-rule.tsx'
import styles from './permissions.module.css'
import {
  deleteNamed,
  type NamedRule,
  namedRulesQuery,
  type Permission,
  permissionsQuery,
  refreshRules,
  usesOf,
} from './rules.ts'

/** Rules with a name, which permissions of any collection follow: who uses each, and what a change of it changes. */
export function NamedRules() {
  const { data: rules } = useSuspenseQuery(namedRulesQuery)
  const { data: permissions } = useSuspenseQuery(permissionsQuery)
  const search = useSearch({ from: '/shell/permissions/rules' })
  const navigate = useNavigate({ from: '/permissions/rules' })
  const [leaving, setLeaving] = useState<NamedRule>()
  const open = rules.find(({ id }) => id === search.open)
  const close = () => void navigate({ search: {}, ignoreBlocker: true })
  return (
    <Page
      title="Named rules"
      description="Rules that permissions of any collection follow. A change of one changes all that follow it."
      crumbs={<Link to="/permissions">Permissions</Link>}
      actions={
        <Link to="/permissions/rules" search={{ open: 'new' }} {...looks({ kind: 'primary' })}>
          <Plus aria-hidden="true" /> New rule
        </Link>
      }
    >
      <Table
        label="Named rules"
        rows={rules}
        keyOf={({ id }) => id}
        columns={[
          { title: 'Name', cell: (rule) => <Name rule={rule} /> },
          {
            title: 'Permissions',
            isNumber: true,
            cell: ({ id }) => usesOf(permissions, id).length.toLocaleString(),
          },
          { title: 'Opens', cell: (rule) => inWords(rule) },
          {
            title: <span className="visually-hidden">Actions</span>,
            cell: (rule) => <Actions rule={rule} onDelete={() => setLeaving(rule)} />,
          },
        ]}
      />
      {(open !== undefined || search.open === 'new') && (
        <NamedRuleEditor
          key={`${search.open} ${search.like}`}
          rule={open}
          like={rules.find(({ id }) => id === search.like)}
          uses={open === undefined ? [] : usesOf(permissions, open.id)}
          onClose={close}
        />
      )}
      {leaving !== undefined && (
        <Delete rule={leaving} uses={usesOf(permissions, leaving.id)} onClose={() => setLeaving(undefined)} />
      )}
    </Page>
  )
}

function Actions({ rule, onDelete }: { readonly rule: NamedRule; readonly onDelete: () => void }) {
  return (
    <span className={styles.rowActions}>
      <Link
        to="/permissions/rules"
        search={{ open: 'new', like: rule.id }}
        aria-label={`Copy ${rule.name}`}
        {...looks({ size: 's' })}
      >
        Copy
      </Link>
      {!rule.system && (
        <Button size="s" aria-label={`Delete ${rule.name}`} onClick={onDelete}>
          Delete…
        </Button>
      )}
    </span>
  )
}

function Name({ rule }: { readonly rule: NamedRule }) {
  return (
    <>
      <Link to="/permissions/rules" search={{ open: rule.id }}>
        {rule.name}
      </Link>{' '}
      {rule.system && <Badge>built in</Badge>}
      {rule.description !== null && <div className={styles.hint}>{rule.description}</div>}
    </>
  )
}

type DeleteProps = {
  readonly rule: NamedRule
  readonly uses: readonly Permission[]
  readonly onClose: () => void
}

/** A rule that permissions follow stays: without it they would grant nothing. */
function Delete({ rule, uses, onClose }: DeleteProps) {
  if (uses.length > 0)
    return (
      <Dialog
        isOpen
        onClose={onClose}
        title={`${rule.name} is in use`}
        footer={<Button onClick={onClose}>Close</Button>}
      >
        <p>These permissions follow it. Give them another rule first.</p>
        <Uses uses={uses} />
      </Dialog>
    )
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Delete ${rule.name}`}
      action="Delete"
      isDangerous
      onConfirm={async () => {
        await deleteNamed(rule.id)
        await refreshRules()
        notify(`Deleted the rule ${rule.name}`)
      }}
    >
      <p>No permission follows it, so nobody gains or loses anything.</p>
    </ConfirmDialog>
  )
}
