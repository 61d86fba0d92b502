//! Plans and the public weights that they name.

use crate::{Op, Plan, PlanError, PublicMatrix};
use megrez_weights::Folder;

impl Plan {
    /// The public matrices that it reads.
    pub fn public_matrices(&self) -> impl Iterator<Item = &PublicMatrix> {
        self.steps.iter().filter_map(|step| match &step.op {
            Op::TimesPublic(matrix) => Some(matrix),
            _ => None,
        })
    }

    /// Takes the public matrices that the plan names from a folder: a plan that came as bytes runs
    /// only then.
    ///
    /// # Errors
    /// Names what is missing or damaged, all of it.
    pub fn bind(&self, folder: &Folder) -> Result<(), PlanError> {
        let mut wrong: Vec<String> = self.public_matrices().filter_map(|m| m.bind(folder).err()).collect();
        wrong.dedup();
        let count = wrong.len();
        if count > SHOWN {
            wrong.truncate(SHOWN);
            wrong.push(format!("and {} others", count - SHOWN));
        }
        if count == 0 { Ok(()) } else { Err(PlanError::Weights { wrong: wrong.join("; ") }) }
    }
}

/// So many files are named in an error.
const SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use megrez_weights::{MAX_FRAC, Matrix, Width};
    use std::sync::Arc;

    fn matrix(rows: usize) -> Matrix {
        let mut column = |n: usize, out: &mut [f32]| {
            out.iter_mut().enumerate().for_each(|(k, w)| *w = (k + 2 * n) as f32 / 10.0);
        };
        Matrix::rounded(rows, 3, Width::Eight, &mut column).unwrap()
    }

    fn plan(matrix: Arc<Matrix>) -> Plan {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "owner", [2, 5].into(), 8);
        let y = plan.step("y", Op::TimesPublic(matrix.into()), &[x]).unwrap();
        plan.output("y", "owner", y);
        plan
    }

    #[test]
    fn a_plan_that_came_as_bytes_is_bound_to_the_same_matrix() {
        let path = std::env::temp_dir().join(format!("megrez-plan-weights-{}", std::process::id()));
        let folder = Folder::at(&path);
        let matrix = Arc::new(matrix(5));
        let made = plan(matrix.clone());
        assert_eq!(made.value(made.outputs[0].value).shape, [2, 3].into());
        assert_eq!(made.value(made.outputs[0].value).kind, Kind::Ring { frac: 8 + matrix.frac() });
        let read = Plan::from_bytes(&made.to_bytes()).unwrap();
        assert_eq!((&read, read.hash()), (&made, made.hash()));
        let missing = read.bind(&folder).unwrap_err().to_string();
        assert!(missing.contains(&matrix.digest().to_string()), "{missing}");
        folder.put(&matrix).unwrap();
        assert!(read.public_matrices().next().unwrap().matrix().is_none());
        read.bind(&folder).unwrap();
        let bound = read.public_matrices().next().unwrap().matrix().unwrap().digest();
        assert_eq!(bound, matrix.digest());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "owner", [2, 4].into(), 8);
        let wrong = plan.step("y", Op::TimesPublic(Arc::new(matrix(5)).into()), &[x]);
        assert!(wrong.unwrap_err().to_string().contains("5 rows"));
        let mut lies = PublicMatrix::from(Arc::new(matrix(4)));
        lies.frac = MAX_FRAC + 1;
        assert!(plan.step("z", Op::TimesPublic(lies.clone()), &[x]).is_err());
        lies.frac = 0;
        lies.columns = 0;
        assert!(plan.step("z", Op::TimesPublic(lies), &[x]).is_err());
    }
}
